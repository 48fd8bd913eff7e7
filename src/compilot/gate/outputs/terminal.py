"""A check on a terminal. In: a report, a width. Out: what rich draws: the verdict first, then one line per metric."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from compilot.gate import words
from compilot.gate.metrics import NUMBERS, RUNS, THROUGHPUT
from compilot.gate.report_records import CheckReport, GateVerdict, MetricResult, SideInfo

STYLES = {
    GateVerdict.PASS: "green",
    GateVerdict.SLOWER: "bold red",
    GateVerdict.WORSE: "bold red",
    GateVerdict.INCONCLUSIVE: "yellow",
    GateVerdict.NOT_MEASURED: "dim",
}
NARROW = 100  # columns below which the interval is left to the sentences


def shown(report: CheckReport, width: int) -> Group:
    """The whole result."""
    sides = Text(f"base: {_side(report.base)}\nhead: {_side(report.head)}\n")
    parts: list[Text | Table] = [_headline(report), sides]
    parts += [_table(report, width), Text()] if _measured(report.metrics) else []
    parts += [_line(one) for one in report.metrics if one.verdict is not GateVerdict.PASS and one.metric != THROUGHPUT]
    parts += [Text(f"note: {note}", style="dim") for note in report.notes if "was not measured" not in note]
    return Group(*parts)


def _headline(report: CheckReport) -> Text:
    text = Text(words.LABELS[report.verdict], style=STYLES[report.verdict])
    return text.append(f": {report.label or report.target}{_short(report)}\n", style="default")


def _short(report: CheckReport) -> str:
    """Which metrics it is about; a pass is said here, everything else has its own line below."""
    if report.verdict in (GateVerdict.PASS, GateVerdict.NOT_MEASURED):
        return f": {report.because}"
    wanted = [one for one in report.metrics if one.verdict.is_red] or [
        one for one in report.metrics if one.verdict is GateVerdict.INCONCLUSIVE
    ]
    return f": {', '.join(dict.fromkeys(f'{one.metric} of {one.arm}' for one in wanted if one.metric != THROUGHPUT))}"


def _side(side: SideInfo) -> str:
    return side.what if not side.torch or side.torch in side.what else f"{side.what}, torch {side.torch}"


def _measured(metrics: Sequence[MetricResult]) -> list[MetricResult]:
    return [one for one in metrics if one.verdict is not GateVerdict.NOT_MEASURED and one.metric != RUNS]


def _table(report: CheckReport, width: int) -> Table:
    """Metrics by arm."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    wide = width >= NARROW
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("base", "head", "change (95 %)" if wide else "change", "could see"):
        table.add_column(name, justify="right", no_wrap=True)
    measured = _measured(report.metrics)
    for arm in dict.fromkeys(one.arm for one in measured):
        table.add_row(Text(arm, style="bold"))
        for one in (metric for metric in measured if metric.arm == arm):
            table.add_row(*_row(one, wide), style=STYLES[one.verdict] if one.verdict.is_red else None)
    return table


def _row(one: MetricResult, wide: bool) -> tuple[Text | str, ...]:
    label = Text(words.LABELS[one.verdict], style=STYLES[one.verdict])
    base, head = figures(one)
    change = words.changed(one) if wide else (words.percent(one.change) if one.change else "")
    return label, one.metric, base, head, change, could_see(one)


def figures(one: MetricResult) -> tuple[str, str]:
    """What base and head have, as text; of numbers the head's relative error."""
    if one.metric == NUMBERS:
        return "", "" if one.head is None else f"{one.head:.1e}"
    return words.amount(one.base, one.unit), words.amount(one.head, one.unit)


def could_see(one: MetricResult) -> str:
    """The smallest change that could have been shown."""
    if one.mde is None:
        return ""
    if one.metric == NUMBERS:
        return f"{one.mde:.1e}"
    return "any" if one.mde == 0.0 else words.share(one.mde)


def _line(one: MetricResult) -> Text:
    label = Text(f"{words.LABELS[one.verdict]}: ", style=STYLES[one.verdict])
    return label.append(f"{one.metric} of {one.arm}: {one.because}", style="default")
