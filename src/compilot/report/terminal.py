"""The table people read. In: RunData. Out: rich renderables: a line per candidate, the honest sentence, how to use it.

Covered: terminals from 80 columns up: numbers are never cut, names and notes wrap; on a narrow one the notes stand
below the table; on a very narrow one a candidate that failed says so in the place of its speed-up, and memory is the
peak alone. One figure per cell, always. No tail stands beside a median of other calls, except where p99 was asked for,
and then the legend says so. Not covered: printing (the command line does that), colour themes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compilot.diagnose.edits import TRAIN_MODE
from compilot.files.naming import nearby
from compilot.measure.stats import calls_needed
from compilot.records import Objective, Plan, ProcessSettings
from compilot.report.data import TRIAL, Row, RunData
from compilot.report.foreseen import foreseen
from compilot.report.pareto import pareto_front, point_of
from compilot.report.results import sentence
from compilot.verdict.boundary_words import clauses
from compilot.verdict.decide import CALL_EVAL
from compilot.verdict.unreached import command, who
from compilot.verdict.words import count, shown

NOTE_LIMIT = 140  # characters; the whole reason is in trials.csv and the journal
NARROW = 112  # columns; below, a note column would be a ladder of single words
VERY_NARROW = 96  # columns; below, the figures themselves do not fit side by side
TIMES = ("cold s", "warm s", "p50 ms", "eager")
RATE, TAIL = "samples/s", "p99 ms"
ASKED: dict[str, str] = {Objective.THROUGHPUT: RATE, Objective.P99: TAIL}  # a column only for those who asked for it
LASTS = ("speed-up", "RSS MiB")
SPEED_UP = LASTS.index("speed-up") - len(LASTS)  # from the end: what was asked for comes before it
STATE_STYLES = {"ok": "green", "wrong": "bold red", "pruned": "dim"}
_MISSING = "-"
UNBEATEN = "*"  # beside ► there is no room for it: the line below the table names all
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
    versus = plan.entries[0].evidence.versus_compile if plan is not None and plan.entries else None
    if versus is not None:
        parts.append(Text(f"Against plain torch.compile: {shown(versus, 'torch.compile')}."))
    if (told := foreseen(data)) is not None:
        parts.append(Text(told.sentence, style="dim"))
    parts += request_lines(data)
    for clause in clauses(data.verdict)[len(data.verdict.repairs) :] if data.verdict is not None else ():
        parts.append(Text(f"{clause[0].upper()}{clause[1:]}."))  # repairs are among the caveats
    for caveat in plan.entries[0].caveats if plan is not None and plan.entries else ():
        parts.append(Text(f"Note: {caveat}.", style="yellow"))
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
        if row["state"] == "ok" and whole and inside is not None:
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
    for number, one in enumerate(found, 1):
        place = f" ({one.where})" if one.where else ""
        parts += [Text(f"{number}. {one.explanation}{place}"), Text(f"   {one.advice}", style="dim")]
    return [*parts, Text()]


def table(data: RunData, *, width: int = 100) -> Table:
    """One line per candidate, in the order tried; the chosen one is marked."""
    title = f"{data.header.workload.label}: {_how_many(data.rows)}{_callers(data)}"
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
        return [mark, name, *figures[:-1], Text(_memory(row, steady=False))]
    return [mark, name, state, *figures, *([Text(_short(_remarks(row)))] if width >= NARROW else [])]


def _how_many(rows: list[Row]) -> str:
    """ "eager and 3 candidates": eager is what the others are measured by, and none of them."""
    others = sum(row["speedup_from"] != "baseline" for row in rows)
    return ("eager and " if others < len(rows) else "") + count(others, "candidate")


def _callers(data: RunData) -> str:
    """ ", 4 callers at the same time"; nothing for one."""
    callers = data.header.concurrency
    return f", {count(callers, 'caller')} at the same time" if callers > 1 else ""


def usage(plan: Plan, plan_path: Path) -> str:
    """The lines of Python that put the plan to work; to be printed unwrapped, so that they can be copied."""
    intro = "Use it:" if plan.entries else "The plan keeps the model eager; code that loads it works all the same:"
    hint = "\n    # call fast under torch.no_grad()" if not plan.workload.grad else ""
    set_up = f'\n    compilot.apply_process("{plan_path}")  # {_settings(plan.process)}' if plan.entries else ""
    set_up = set_up if plan.process != ProcessSettings() else ""
    return f'{intro}\n    import compilot{set_up}\n    fast = compilot.compile(model, "{plan_path}"){hint}'


def _settings(process: ProcessSettings) -> str:
    """ "threads = 1": what the plan was measured with, and a process has to be told."""
    known = msgspec.structs.asdict(process).items()
    return ", ".join(f"{name} = {value}" for name, value in known if value is not None)


def speed_up(row: Row) -> str:
    """ "1.93x [1.88-1.97]"; "~1.9x" where only the screening saw it; "" where nothing did."""
    ratio, low, high = row["speedup"], row["speedup_low"], row["speedup_high"]
    if ratio is None:
        return _MISSING
    if row["speedup_from"] == "baseline":
        return "baseline"
    if low is None or high is None:
        return f"~{ratio:.2f}x"
    return f"{ratio:.2f}x [{low:.2f}-{high:.2f}]"


def _names(row: Row, unbeaten: bool) -> list[Text]:
    state = Text(row["state"], style=STATE_STYLES.get(row["state"], "yellow"))
    mark = "►" if row["chosen"] else UNBEATEN if unbeaten else ""
    return [Text(mark), Text(row["candidate"]), state]


def _front_line(rows: list[Row]) -> list[str]:
    """Whom no other candidate beats in everything; nothing where there is nobody to compare."""
    front = pareto_front(rows)
    if len([row for row in rows if point_of(row) is not None]) < 2:
        return []
    names = "; ".join(row["candidate"] for row in rows if row["id"] in front)  # labels have commas
    return [f"{UNBEATEN} no other candidate is better in latency, start and memory at once: {names}"]


def _figures(row: Row, asked: str | None) -> list[str]:
    """The cells below TIMES, what was asked for, and LASTS."""
    tail = "n/a" if row["p99_ms"] is None and row["calls"] else _number(row["p99_ms"])
    special = {RATE: _number(row["samples_per_s"]), TAIL: tail}
    return [
        _number(row["cold_s"]),
        _number(row["warm_s"]),
        _number(row["p50_ms"]),
        _number(row["eager_p50_ms"]),
        *([special[asked]] if asked else []),
        speed_up(row),
        _memory(row),
    ]


def _remarks(row: Row) -> str:
    return "; ".join(text for text in (row["note"], row["caveats"]) if text)


def _memory(row: Row, *, steady: bool = True) -> str:
    """ "512/256"; "~512/256" where it is that of the trial's own process."""
    sizes = [size for size in (row["peak_rss_mib"], row["steady_rss_mib"] if steady else None) if size is not None]
    mark = "~" if row["memory_from"] == TRIAL else ""
    return mark + "/".join(f"{size:.0f}" for size in sizes) if sizes else _MISSING


def _number(value: float | None) -> str:
    """Three or four significant digits, never an exponent."""
    if value is None:
        return _MISSING
    if value >= 10:
        return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _short(note: str) -> str:
    note = " ".join(note.split())
    return note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "..."


def _notes(rows: list[Row], width: int) -> list[Text]:
    """What the candidates have to say, where the table has no room for it."""
    if width >= NARROW:
        return []
    return [Text(f"{row['candidate']}: {_short(_remarks(row))}", style="dim") for row in rows if _remarks(row)]


def legend(data: RunData, width: int) -> list[Text]:
    """What the columns are, as far as this table has them."""
    rows, asked = data.rows, ASKED.get(data.header.objective)
    memory = f"RSS MiB: resident memory, {'peak' if width < VERY_NARROW else 'peak/steady'}"
    if any(row["memory_from"] == TRIAL for row in rows):
        memory += "; ~: of the trial, which also built and checked it"
    notes = [
        "warm s: first call of a fresh process that finds the files of an earlier one",
        "p50 ms, eager (its p50): of the rounds behind the speed-up" + "; samples/s: by their mean" * (asked == RATE),
        *(["p99 ms: of single calls, timed apart from those rounds"] if asked == TAIL else []),
        memory,
    ]
    if any(row["callers"] > 1 for row in rows):
        notes.append("with several callers these are wall time over all of them, not what one caller waits")
    if any(row["speedup_from"] == "screening" for row in rows):
        notes.append("~1.2x: from a short screening against eager: no interval, not a proof")
    if asked == TAIL and any(row["calls"] and row["p99_ms"] is None for row in rows):
        notes.append(f"n/a: an honest p99 needs {calls_needed(0.99)} calls")
    notes += _front_line(rows)
    return [Text(note, style="dim") for note in notes]


def _headline(data: RunData) -> str:
    chosen = next((row["candidate"] for row in data.rows if row["chosen"]), None)
    return f"{chosen}: " if chosen else ""
