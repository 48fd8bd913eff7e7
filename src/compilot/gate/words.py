"""Figures of a check in plain words, the same in every output. In: effects, numbers. Out: short English."""

from __future__ import annotations

from compilot.gate.effects import Effect
from compilot.gate.report_records import GateVerdict, MetricResult
from compilot.verdict.words import call_time

LABELS = {
    GateVerdict.PASS: "pass",
    GateVerdict.SLOWER: "SLOWER",
    GateVerdict.WORSE: "WORSE",
    GateVerdict.INCONCLUSIVE: "inconclusive",
    GateVerdict.NOT_MEASURED: "not measured",
}


def percent(value: float) -> str:
    """A signed change: "+12.3 %"."""
    return f"{value * 100:+.1f} %"


def share(value: float) -> str:
    """Without a sign: "6.2 %"."""
    return f"{value * 100:.1f} %"


def change(effect: Effect) -> str:
    """ "+12.3 % (95 % +10.1 to +14.8 %)"."""
    return f"{percent(effect.change)} (95 % {effect.low * 100:+.1f} to {effect.high * 100:+.1f} %)"


def effect(one: Effect) -> str:
    """The change with how much was measured."""
    more = "slower" if one.is_time and one.unit == "s" else "more"
    sign = f"{more} by " if one.change > one.margin else ""
    size = f"; {one.size}" if one.size else ""
    return f"{sign}{change(one)[:-1]}{size})"


def seen(one: Effect) -> str:
    """What a pass could have shown, by two races that agree."""
    return f"{share(one.seen)} or more would have been seen"


def more_time(one: Effect) -> str:
    """What to do where nothing could be shown."""
    text = f"up to {percent(one.high)} cannot be excluded"
    return f"{text}; give a larger budget, or a quieter machine"


def count(value: int, unit: str) -> str:
    """A count, or a size in bytes."""
    return amount(float(value), unit)


def amount(value: float | None, unit: str) -> str:
    """A figure with its unit; "-" for none."""
    if value is None:
        return "-"
    if unit == "s":
        return call_time(value) if value < 1.0 else f"{value:.2f} s"
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB" if value >= 100_000 else f"{value / 1e3:.1f} kB"
    if unit == "samples/s":
        return f"{value:.0f}/s" if value >= 100 else f"{value:.2f}/s"
    return f"{value:.0f}"


def plural(number: int, noun: str) -> str:
    """ "3 metrics"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def changed(one: MetricResult) -> str:
    """The change of a metric for a table; "" where there is none."""
    if one.change is None:
        return ""
    if one.low is None or one.high is None:
        return percent(one.change) if one.change else "0"
    return f"{percent(one.change)} ({one.low * 100:+.1f} to {one.high * 100:+.1f})"
