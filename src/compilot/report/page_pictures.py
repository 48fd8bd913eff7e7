"""The sections with pictures. In: View. Out: Sections, or None where the run has no figures for one.

Candidates, the search, intervals, single calls, starts, the Pareto front, when a start is paid back.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.records import State
from compilot.report import cells
from compilot.report.chart_colours import engine_colours, first_engine
from compilot.report.chart_data import Curve, curves, pareto_points
from compilot.report.course import spent
from compilot.report.data import Row, unavailable
from compilot.report.page_records import Section, Table, View
from compilot.report.picture_plots import (
    curve_legend,
    front_key,
    front_picture,
    paid,
    payback_key,
    payback_picture,
)
from compilot.report.picture_rows import (
    Shown,
    calls_picture,
    interval_picture,
    start_picture,
    with_calls,
    with_speed_up,
    with_starts,
)
from compilot.report.picture_search import search_key, search_picture
from compilot.report.svg import colour_class


def candidates(view: View) -> Section | None:
    """Every candidate, as the terminal shows them."""
    rows, asked = view.data.rows, cells.ASKED.get(view.data.header.objective)
    if not rows:
        return None
    columns = ["candidate", "state", "cold s", "warm s", "p50 ms", "eager", *([asked] if asked else [])]
    columns += ["speed-up", "RSS MiB", "note"]
    table = Table(
        caption=f"{cells.how_many(rows)}{cells.callers(view.data)}, in the order tried",
        columns=tuple(columns),
        rows=tuple(_candidate(row, asked) for row in rows),
        figures=frozenset(range(2, len(columns) - 1)),
        marked=_chosen(rows),
    )
    about = "Every figure is computed from the raw samples in journal.jsonl; trials.csv has more columns."
    notes = tuple(note.removeprefix(f"{cells.UNBEATEN} ") for note in cells.legend_notes(view.data))
    return Section("candidates", "Candidates", about, tables=(table,), notes=notes)


def _candidate(row: Row, asked: str | None) -> tuple[str, ...]:
    tail = "n/a" if row["p99_ms"] is None and row["calls"] else cells.number(row["p99_ms"])
    special = {cells.RATE: cells.number(row["samples_per_s"]), cells.TAIL: tail}
    return (
        _name(row),
        row["state"],
        *(cells.number(figure) for figure in (row["cold_s"], row["warm_s"], row["p50_ms"], row["eager_p50_ms"])),
        *([special[asked]] if asked else []),
        cells.speed_up(row),
        cells.memory(row),
        cells.short(cells.remarks(row)),
    )


def _name(row: Row) -> str:
    return f"► {row['candidate']}" if row["chosen"] else row["candidate"]


def _chosen(rows: Sequence[Row]) -> frozenset[int]:
    return frozenset(number for number, row in enumerate(rows) if row["chosen"])


def _engines(engines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The legend of engines."""
    return tuple(
        (colour_class(colour), engine) for engine, colour in engine_colours(map(first_engine, engines)).items()
    )


def _more(shown: Shown) -> str:
    return f" {shown.left_out} more are in the table above." if shown.left_out else ""


def search(view: View) -> Section | None:
    """What was tried when, and what became of it."""
    found = view.course
    if not found.marks:
        return None
    dropped = [mark for mark in found.marks if mark.state is not State.OK]
    about = (
        "A mark stands where its trial ended, the line before it is the time that the trial took. Trials that gave no "
        "candidate are in the lanes below."
    )
    rows = tuple((mark.label, mark.state.value, f"{mark.to_s:.0f} s", mark.reason) for mark in dropped)
    table = Table("What was dropped, and why", ("candidate", "state", "ended at", "reason"), rows, frozenset({2}))
    return Section(
        "search",
        "The search",
        f"{spent(found)[0].upper()}{spent(found)[1:]}. {about}",
        search_picture(found),
        _engines([mark.engine for mark in found.marks]),
        tuple(search_key(found)),
        (table,) if dropped else (),
    )


def intervals(view: View) -> Section | None:
    """Speed-ups with their intervals."""
    shown = with_speed_up(view.data)
    if not shown.rows:
        return None
    about = (
        "Speed-up over eager with its 95 % interval, from calls timed in pairs side by side. Grey: too little to be "
        "called a difference. A ring has no interval: a short screening, not a proof."
    )
    legend = _engines([row["engine"] for row in shown.rows])
    return Section("intervals", "Speed-up", about + _more(shown), interval_picture(view.data), legend)


def calls(view: View) -> Section | None:
    """How much single calls vary."""
    shown = with_calls(view.data)
    if not shown.rows:
        return None
    about = (
        "Single calls as their caller sees them, timed apart from the pairs: one tick each. The box holds the middle "
        "half, the line in it is the median."
    )
    columns = ("candidate", "calls", "p50 ms", "p95 ms", "p99 ms", "std ms")
    rows = tuple(
        (
            _name(row),
            str(row["calls"]),
            cells.number(row["call_p50_ms"]),
            cells.number(row["p95_ms"]) if row["p95_ms"] is not None else unavailable(0.95),
            cells.number(row["p99_ms"]) if row["p99_ms"] is not None else unavailable(0.99),
            cells.number(row["std_ms"]),
        )
        for row in shown.rows
    )
    table = Table("Single calls, in figures", columns, rows, frozenset(range(1, 6)), _chosen(shown.rows), folded=True)
    legend = _engines([row["engine"] for row in shown.rows])
    return Section("calls", "Single calls", about + _more(shown), calls_picture(view.data), legend, tables=(table,))


def starts(view: View) -> Section | None:
    """Cold against warm."""
    shown = with_starts(view.data)
    if not shown.rows:
        return None
    about = (
        "The first call of a process. Filled: cold, everything is built. Ring: warm, a fresh process that finds the "
        "files of an earlier one."
    )
    columns = ("candidate", "cold s", "warm s", "CPU s of the build", "runs of the C++ compiler")
    rows = tuple(
        (
            _name(row),
            *(cells.number(figure) for figure in (row["cold_s"], row["warm_s"], row["compile_cpu_s"])),
            cells.MISSING if row["compiler_runs"] is None else str(row["compiler_runs"]),
        )
        for row in shown.rows
    )
    table = Table("Starts, in figures", columns, rows, frozenset(range(1, 5)), _chosen(shown.rows), folded=True)
    legend = _engines([row["engine"] for row in shown.rows])
    return Section(
        "starts", "Cold and warm start", about + _more(shown), start_picture(view.data), legend, tables=(table,)
    )


def front(view: View) -> Section | None:
    """What else there is to choose from."""
    points = pareto_points(view.data)
    if len(points) < 2:
        return None
    about = (
        "Left, low and small is good; the size is peak memory. Filled and numbered: nothing else is better in latency, "
        "start and memory at once. The start is the warm one where it is known."
    )
    legend = _engines([point.engine for point in points])
    return Section("front", "Latency, start and memory", about, front_picture(points), legend, tuple(front_key(points)))


def payback(view: View) -> Section | None:
    """From how many calls on a start pays."""
    found = curves(view.data)
    if len(found) < 2:
        return None
    about = (
        "Total time of a process that starts and calls. Where a line crosses eager's, the start is paid back; the bar "
        "is the 95 % interval. Dashed: after a warm start."
    )
    columns = ("candidate", "start", "first call s", "then ms a call", "paid back after", "95 % interval")
    table = Table(
        "Starts and calls, in figures", columns, tuple(map(_paid_row, found)), frozenset(range(2, 6)), folded=True
    )
    notes = () if paid(found) else ("No start is paid back: no gain over eager was shown.",)
    legend, key = tuple(curve_legend(found)), tuple(payback_key(found))
    return Section("payback", "When a start is paid back", about, payback_picture(found), legend, key, (table,), notes)


def _paid_row(curve: Curve) -> tuple[str, ...]:
    low, high = curve.break_even_low, curve.break_even_high
    interval = cells.MISSING if low is None else f"{low:,}-{'never' if high is None else f'{high:,}'}"
    after = cells.MISSING if curve.break_even is None else f"{curve.break_even:,} calls"
    return (
        curve.label,
        curve.start,
        cells.number(curve.first_s),
        cells.number(curve.per_call_s * 1e3),
        after,
        interval,
    )
