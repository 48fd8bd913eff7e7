"""The table people read. In: RunData. Out: rich renderables: a line per candidate, the honest sentence, how to use it.

Covered: terminals from 80 columns up: numbers are never cut, names and notes wrap; on a narrow one the notes stand
below the table; on a very narrow one a candidate that failed says so in the place of its speed-up, and memory is the
peak alone. One figure per cell, always. No tail stands beside a median of other calls, except where p99 was asked for,
and then the legend says so. Not covered: printing (the command line does that), colour themes.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compilot.diagnose.edits import TRAIN_MODE
from compilot.files.naming import nearby
from compilot.records import Kind, Plan
from compilot.report.cells import (
    ASKED,
    RATE,
    TAIL,
    UNBEATEN,
    callers,
    how_many,
    legend_notes,
    memory,
    number,
    remarks,
    short,
    speed_up,
)
from compilot.report.cells import usage as usage
from compilot.report.data import Row, RunData
from compilot.report.pareto import pareto_front
from compilot.report.results import sentence
from compilot.report.sentences import CAVEAT, PLAIN, QUIET, beside
from compilot.verdict.decide import CALL_EVAL
from compilot.verdict.unreached import command, who

NARROW = 112  # columns; below, a note column would be a ladder of single words
VERY_NARROW = 96  # columns; below, the figures themselves do not fit side by side
TIMES = ("cold s", "warm s", "p50 ms", "eager")
LASTS = ("speed-up", "RSS MiB")
SPEED_UP = LASTS.index("speed-up") - len(LASTS)  # from the end: what was asked for comes before it
STYLES = {PLAIN: "", QUIET: "dim", CAVEAT: "yellow"}
STATE_STYLES = {"ok": "green", "wrong": "bold red", "pruned": "dim"}
TOP_FINDINGS = 3  # the rest is in the doctor's report beside the journal


def summary(data: RunData, plan: Plan | None, *, width: int = 100) -> Group:
    """All that a finished run has to say: what matters most, table, footnotes, the honest sentence."""
    parts: list[RenderableType] = [
        *_findings(data),
        table(data, width=width),
        *legend(data, width),
        *_notes(data.rows, width),
        Text(),
    ]
    parts.append(Text.assemble((_headline(data), "bold"), sentence(plan, data)))
    for one in beside(plan, data):
        parts.append(Text(f"Note: {one.text}" if one.kind == CAVEAT else one.text, style=STYLES[one.kind]))
    parts += request_lines(data)
    if data.verdict is not None and data.verdict.not_reached is not None:
        missed = who(data.verdict.not_reached)
        parts.append(Text(f"{missed[0].upper()}{missed[1:]}:"))
        parts.append(_to_copy(command(data.verdict.not_reached, nearby(data.run_dir))))
    return Group(*parts)


def request_lines(data: RunData) -> list[Text]:
    """The whole path of a request and the model's share of it, for each candidate that worked; nothing without."""
    found = []
    for row in data.rows:
        whole, inside = row["request_ms"], row["model_ms"]
        if row["state"] == "ok" and whole and inside is not None and data.header.workload.kind is Kind.TRAINING:
            limit = "; the loader is the limit" if whole - inside > inside else ""
            waits = f"{whole - inside:.3g} ms of them waiting for data ({1 - inside / whole:.0%}){limit}"
            found.append(Text(f"{row['candidate']}: a step takes {whole:.3g} ms, {waits}."))
        elif row["state"] == "ok" and whole and inside is not None:
            share = f"{inside:.3g} ms of them in the model ({inside / whole:.0%})"
            found.append(Text(f"{row['candidate']}: a request takes {whole:.3g} ms, {share}."))
    return found


def _to_copy(text: str) -> Text:
    """A command on a line of its own, which is never broken by us."""
    return Text(f"    {text}", no_wrap=True, overflow="ignore")


def _findings(data: RunData) -> list[RenderableType]:
    """The three findings that matter most, each with its fix; what the verdict says below is not said here, too."""
    findings = data.diagnosis.findings if data.diagnosis is not None else ()
    said = data.verdict is not None and CALL_EVAL in data.verdict.because
    found = [one for one in findings if not (said and one.kind == TRAIN_MODE)][:TOP_FINDINGS]
    if not found:
        return []
    parts: list[RenderableType] = [Text("What matters most about this model", style="bold")]
    for rank, one in enumerate(found, 1):
        place = f" ({one.where})" if one.where else ""
        parts += [Text(f"{rank}. {one.explanation}{place}"), Text(f"   {one.advice}", style="dim")]
    return [*parts, Text()]


def table(data: RunData, *, width: int = 100) -> Table:
    """One line per candidate, in the order tried; the chosen one is marked."""
    title = f"{data.header.workload.label}: {how_many(data.rows)}{callers(data)}"
    asked = ASKED.get(data.header.objective)
    view = Table(title=title, title_style="bold", title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    view.add_column("", width=1)
    view.add_column("candidate", min_width=13 if width < VERY_NARROW else 16, overflow="fold")
    if width >= VERY_NARROW:
        view.add_column("state", no_wrap=True)
    for name in (*TIMES, *([asked] if asked else []), *LASTS):
        view.add_column(name, justify="right", no_wrap=True)
    if width >= NARROW:
        view.add_column("note", min_width=12, overflow="fold")
    front = pareto_front(data.rows)
    for row in data.rows:
        cells = _cells(row, width, asked, unbeaten=row["id"] in front)
        view.add_row(*cells, style="bold" if row["chosen"] else "")
    return view


def _cells(row: Row, width: int, asked: str | None, *, unbeaten: bool) -> list[Text]:
    """A row as the columns of this width want it."""
    mark, name, state = _names(row, unbeaten)
    figures = [Text(figure) for figure in _figures(row, asked)]
    if width < VERY_NARROW:
        figures[SPEED_UP] = figures[SPEED_UP] if row["state"] == "ok" else state
        return [mark, name, *figures[:-1], Text(memory(row, steady=False))]
    return [mark, name, state, *figures, *([Text(short(remarks(row)))] if width >= NARROW else [])]


def _names(row: Row, unbeaten: bool) -> list[Text]:
    state = Text(row["state"], style=STATE_STYLES.get(row["state"], "yellow"))
    mark = "►" if row["chosen"] else UNBEATEN if unbeaten else ""
    return [Text(mark), Text(row["candidate"]), state]


def _figures(row: Row, asked: str | None) -> list[str]:
    """The cells below TIMES, what was asked for, and LASTS."""
    tail = "n/a" if row["p99_ms"] is None and row["calls"] else number(row["p99_ms"])
    special = {RATE: number(row["samples_per_s"]), TAIL: tail}
    return [
        number(row["cold_s"]),
        number(row["warm_s"]),
        number(row["p50_ms"]),
        number(row["eager_p50_ms"]),
        *([special[asked]] if asked else []),
        speed_up(row),
        memory(row),
    ]


def _notes(rows: list[Row], width: int) -> list[Text]:
    """What the candidates have to say, where the table has no room for it."""
    if width >= NARROW:
        return []
    return [Text(f"{row['candidate']}: {short(remarks(row))}", style="dim") for row in rows if remarks(row)]


def legend(data: RunData, width: int) -> list[Text]:
    """What the columns are, as far as this table has them."""
    return [Text(note, style="dim") for note in legend_notes(data, steady=width >= VERY_NARROW)]


def _headline(data: RunData) -> str:
    chosen = next((row["candidate"] for row in data.rows if row["chosen"]), None)
    return f"{chosen}: " if chosen else ""
