"""One figure, one text: what stands in a cell of a table, the same in the terminal, on the page and in Markdown.

In: a row of a run, its plan. Out: plain text. A figure that is not known is a dash. Pure. Not covered: layout
(terminal.py, the page's template).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from compilot.measure.stats import calls_needed
from compilot.records import Kind, Objective, Plan, ProcessSettings
from compilot.report.data import TRIAL, Row, RunData
from compilot.report.pareto import pareto_front, point_of
from compilot.verdict.step_words import in_words_of
from compilot.verdict.words import count

NOTE_LIMIT = 140  # characters; the whole reason is in trials.csv and the journal
MISSING = "-"
RATE, TAIL = "samples/s", "p99 ms"
ASKED: dict[str, str] = {Objective.THROUGHPUT: RATE, Objective.P99: TAIL}  # a column only for those who asked for it
UNBEATEN = "*"  # beside ► there is no room for it: the line below the table names all


def usage(plan: Plan, plan_path: Path) -> str:
    """The lines of Python that put the plan to work; to be printed unwrapped, so that they can be copied."""
    intro = "Use it:" if plan.entries else "The plan keeps the model eager; code that loads it works all the same:"
    if plan.workload.kind is Kind.TRAINING:
        return _training_usage(plan, plan_path)
    hint = "\n    # call fast under torch.no_grad()" if not plan.workload.grad else ""
    set_up = f'\n    compilot.apply_process("{plan_path}")  # {_settings(plan.process)}' if plan.entries else ""
    set_up = set_up if plan.process != ProcessSettings() else ""
    return f'{intro}\n    import compilot{set_up}\n    fast = compilot.compile(model, "{plan_path}"){hint}'


def _training_usage(plan: Plan, plan_path: Path) -> str:
    """The same for a training: the step in the place of forward, backward and optimizer.step()."""
    intro = "Use it:" if plan.entries else "The plan keeps eager's step; code that loads it works all the same:"
    set_up = f'\n    compilot.apply_process("{plan_path}")  # {_settings(plan.process)}'
    set_up = set_up if plan.entries and plan.process != ProcessSettings() else ""
    made = f'step = compilot.train_step(model, loss, optimizer, "{plan_path}")'
    return f"{intro}\n    import compilot{set_up}\n    {made}\n    value = step(batch)  # for each batch"


def _settings(process: ProcessSettings) -> str:
    """ "threads = 1": what the plan was measured with, and a process has to be told."""
    known = msgspec.structs.asdict(process).items()
    return ", ".join(f"{name} = {value}" for name, value in known if value is not None)


def speed_up(row: Row) -> str:
    """ "1.93x [1.88-1.97]"; "~1.9x" where only the screening saw it; "" where nothing did."""
    ratio, low, high = row["speedup"], row["speedup_low"], row["speedup_high"]
    if ratio is None:
        return MISSING
    if row["speedup_from"] == "baseline":
        return "baseline"
    if low is None or high is None:
        return f"~{ratio:.2f}x"
    return f"{ratio:.2f}x [{low:.2f}-{high:.2f}]"


def memory(row: Row, *, steady: bool = True) -> str:
    """ "512/256"; "~512/256" where it is that of the trial's own process."""
    sizes = [size for size in (row["peak_rss_mib"], row["steady_rss_mib"] if steady else None) if size is not None]
    mark = "~" if row["memory_from"] == TRIAL else ""
    return mark + "/".join(f"{size:.0f}" for size in sizes) if sizes else MISSING


def number(value: float | None) -> str:
    """Three or four significant digits, never an exponent."""
    if value is None:
        return MISSING
    if value >= 10:
        return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def remarks(row: Row) -> str:
    """What its user must know."""
    return "; ".join(text for text in (row["note"], row["caveats"]) if text)


def short(note: str) -> str:
    """On one line, cut where it is long."""
    note = " ".join(note.split())
    return note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "..."


def how_many(rows: list[Row]) -> str:
    """ "eager and 3 candidates": eager is what the others are measured by, and none of them."""
    others = sum(row["speedup_from"] != "baseline" for row in rows)
    return ("eager and " if others < len(rows) else "") + count(others, "candidate")


def callers(data: RunData) -> str:
    """ ", 4 callers at the same time"; nothing for one."""
    number = data.header.concurrency
    return f", {count(number, 'caller')} at the same time" if number > 1 else ""


def front_line(rows: list[Row]) -> list[str]:
    """Whom no other candidate beats in everything; nothing where there is nobody to compare."""
    front = pareto_front(rows)
    if len([row for row in rows if point_of(row) is not None]) < 2:
        return []
    names = "; ".join(row["candidate"] for row in rows if row["id"] in front)  # labels have commas
    return [f"{UNBEATEN} no other candidate is better in latency, start and memory at once: {names}"]


def legend_notes(data: RunData, *, steady: bool = True) -> list[str]:
    """What the columns are, as far as this run's table has them; steady: it has that memory, too."""
    rows, asked = data.rows, ASKED.get(data.header.objective)
    resident = f"RSS MiB: resident memory, {'peak/steady' if steady else 'peak'}"
    if any(row["memory_from"] == TRIAL for row in rows):
        resident += "; ~: of the trial, which also built and checked it"
    notes = [
        "warm s: first call of a fresh process that finds the files of an earlier one",
        "p50 ms, eager (its p50): of the rounds behind the speed-up" + "; samples/s: by their mean" * (asked == RATE),
        *(["p99 ms: of single calls, timed apart from those rounds"] if asked == TAIL else []),
        resident,
    ]
    if any(row["callers"] > 1 for row in rows):
        notes.append("with several callers these are wall time over all of them, not what one caller waits")
    if any(row["speedup_from"] == "screening" for row in rows):
        notes.append("~1.2x: from a short screening against eager: no interval, not a proof")
    if asked == TAIL and any(row["calls"] and row["p99_ms"] is None for row in rows):
        notes.append(f"n/a: an honest p99 needs {calls_needed(0.99)} calls")
    return [in_words_of(data.header.workload.kind, note) for note in notes + front_line(rows)]
