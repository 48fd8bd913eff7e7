"""Figures in plain words, the same everywhere a verdict is printed.

In: numbers and Comparisons. Out: short English, units included. Covered: seconds, counts, intervals, outcomes.
Speed-ups and noise have one unit, x; percentages are for shares. Not covered: layout and colour (report, cli).
"""

from __future__ import annotations

from compilot.measure.stats import MIN_MARGIN
from compilot.records import BreakEven, Comparison, Outcome

NOISY = 0.05  # A/A noise above which most gains of a compiler cannot be proven: the machine is what to change


def seconds(value: float) -> str:
    """A duration with a sensible unit: 120 s, 11.5 s, 0.04 s, 4.5 ms, 12 us."""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1:
        return f"{value:.1f} s"
    if value >= 0.01:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def call_time(value: float) -> str:
    """The duration of a call, to be set against another: milliseconds with three digits, "10.0 ms", "0.125 ms"."""
    ms = value * 1e3
    decimals = next((d for d, least in enumerate((100.0, 10.0, 1.0)) if ms >= least), 3)
    return f"{ms:.{decimals}f} ms"


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{value * 100:.1f} %"


def count(number: int, noun: str, plural: str = "s") -> str:
    """A number with its noun: "1 candidate", "3 processes"."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def size(processes: int, least: int, total: int) -> str:
    """How much was timed: "3 processes x 80 pairs"; progress and results have the same words for the same race.

    "126 pairs in 3 processes, at least 40 in each" where time made some of them shorter than others.
    """
    sets = count(processes, "process", "es")
    if total == processes * least:
        return f"{sets} x {count(least, 'pair')}"
    return f"{count(total, 'pair')} in {sets}, at least {least} in each"


def times(ratio: float) -> str:
    """A speed-up, or how far eager varied: "1.93x"; one more decimal near 1, where it matters."""
    return f"{ratio:.{_decimals(ratio)}f}x"


def varied(noise: float) -> str:
    """A/A noise: "eager against itself varied by 1.03x"."""
    return f"eager against itself varied by {times(1.0 + noise)}"


def interval(comparison: Comparison) -> str:
    """The 95 % interval, with the decimals of its ratio: "95 % 1.88-1.97"."""
    decimals = _decimals(comparison.ratio)
    return f"95 % {comparison.low:.{decimals}f}-{comparison.high:.{decimals}f}"


def shown(comparison: Comparison, than: str = "eager", *, setting: str = "") -> str:
    """What was shown and what was not: "1.93x faster than eager (95 % 1.88-1.97)".

    setting: how it was measured, said beside the interval. What was not shown says why not.
    """
    if comparison.outcome is Outcome.UNDECIDED:
        return "; ".join((f"undecided against {than}", *comparison.doubts))
    figures = f"({interval(comparison)}{f'; {setting}' if setting else ''})"
    claim = _claim(comparison.ratio, than)
    if comparison.outcome is not Outcome.NO_DIFFERENCE:
        return f"{claim} {figures}"
    if abs(comparison.ratio - 1.0) <= MIN_MARGIN:
        return f"no difference from {than} shown: {times(comparison.ratio)} {figures}"
    return f"looks {claim} {figures}, but {_why_not(comparison)}"


def pays_back(even: BreakEven | None) -> str:
    """ "pays back after 870 calls (95 % 790-980), with kept artifacts after 12 (95 % 11-14)"."""
    if even is None or even.cold_calls is None:
        return "never pays back a cold start"
    cold = f"pays back after {count(even.cold_calls, 'call')}{_calls_between(even.cold_low, even.cold_high)}"
    if even.warm_calls is None:
        return cold
    return f"{cold}, with kept artifacts after {even.warm_calls}{_calls_between(even.warm_low, even.warm_high)}"


def _calls_between(low: int | None, high: int | None) -> str:
    """The interval of a break-even; "" where there is none, or where it is a single number."""
    if low is None or low == high:
        return ""
    return f" (95 % at least {count(low, 'call')})" if high is None else f" (95 % {low}-{high})"


def _claim(ratio: float, than: str) -> str:
    return f"{times(ratio)} faster than {than}" if ratio >= 1.0 else f"slower than {than}: {times(ratio)}"


def _why_not(comparison: Comparison) -> str:
    """What stands between a ratio and a proof: its own scatter, eager's, or that it is too small to matter."""
    distance = max(comparison.ratio, 1.0 / comparison.ratio)
    if comparison.low <= 1.0 <= comparison.high and distance > 1.0 + comparison.margin:
        return "the interval includes 1: not proven"
    if comparison.aa_noise < comparison.margin:  # no A/A arm, or eager was steadier than what counts at all
        return f"only more than {times(1.0 + comparison.margin)} counts as a difference: not proven"
    advice = "; try again on a quieter machine" if comparison.aa_noise > NOISY else ""
    return f"{varied(comparison.aa_noise)} in this run: not proven{advice}"


def _decimals(ratio: float) -> int:
    return 3 if 0.9 < ratio < 1.1 else 2
