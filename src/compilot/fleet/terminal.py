"""The report of a fleet for people. In: FleetReport. Out: things that rich prints: a table, and sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compilot._durations import spell_duration
from compilot.fleet.rows import FleetReport, FleetRow, RowState

COLOURS = {
    RowState.PUSHED: "green",
    RowState.EAGER: "green",
    RowState.UNPROVEN: "yellow",
    RowState.THERE: "dim",
    RowState.FAILED: "red",
    RowState.LATE: "yellow",
    RowState.NO_MACHINE: "yellow",
    RowState.TO_DO: "cyan",
}
WIDE = 100  # columns from which a row has room for its reason


def summary(report: FleetReport, width: int) -> RenderableType:
    """Result first, then a row for each model and machine, with the reason beside it or, without room, below."""
    machines = [Text(f"  {name}: {words}", style="dim") for name, words in report.machines.items()]
    notes = [Text(f"note: {note}") for note in report.notes]
    wrong = [_reason(row) for row in report.rows if row.because and width < WIDE]
    parts: list[RenderableType] = [Text(_first(report), style="bold"), *machines, Text(""), _table(report, width)]
    return Group(*parts, *([Text("")] if wrong or notes else []), *wrong, *notes)


def _first(report: FleetReport) -> str:
    if not report.dry_run:
        return report.sentence
    to_do = report.counts.get(RowState.TO_DO, 0)
    if not to_do:
        return f"dry run: {report.sentence}"
    at_most = spell_duration(round(report.may_take_s or 0.0) or 1)
    return f"dry run: {to_do} to do, {len(report.rows) - to_do} not; it may take {at_most}, if every budget is used."


def _table(report: FleetReport, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "machine", "result", "engine", "speed-up", "time"):
        table.add_column(name, justify="right" if name in ("speed-up", "time") else "left", overflow="fold")
    if width >= WIDE:
        table.add_column("because", overflow="fold")
    for row in report.rows:
        took = row.seconds if row.seconds is not None else row.may_take_s
        cells = [
            Text(row.model),
            Text(row.machine),
            Text(row.state.value, style=COLOURS[row.state]),
            Text(row.engine),
            Text(f"{row.speedup:.2f}x" if row.speedup else ""),
            Text(("" if row.seconds is not None else "<= ") + spell_duration(round(took) or 1) if took else ""),
        ]
        table.add_row(*cells, *([Text(row.because)] if width >= WIDE else []))
    return table


def _is_wrong(row: FleetRow) -> bool:
    return row.state in (RowState.FAILED, RowState.LATE, RowState.NO_MACHINE)


def _reason(row: FleetRow) -> Text:
    style = COLOURS[row.state] if _is_wrong(row) else "dim"
    return Text(f"{row.model} on {row.machine}: {row.because}", style=style)
