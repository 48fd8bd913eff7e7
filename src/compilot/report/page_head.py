"""The first screen of the report: the verdict, the honest sentence, the lines of Python, a few figures.

In: View. Out: Head. Every sentence and figure is the one that the terminal prints. Covered: runs that keep eager, that
ended before a verdict, and comparisons that decide nothing.
"""

from __future__ import annotations

import textwrap
from functools import partial

from compilot.artifacts.rundir import RunDir
from compilot.files.naming import nearby
from compilot.records import Decision
from compilot.report.cells import memory, number, speed_up, usage
from compilot.report.data import PROVING, Row
from compilot.report.page_records import Head, Tile, View
from compilot.report.results import arm_sentences, sentence
from compilot.report.sentences import beside
from compilot.verdict.step_words import in_words_of
from compilot.verdict.unreached import command, who
from compilot.verdict.words import times

USE, KEEP, OPEN = "use", "keep", "open"


def head_of(view: View) -> Head:
    """What everybody should see first."""
    data, header = view.data, view.data.header
    missed = data.verdict.not_reached if data.verdict is not None else None
    about, lines = _usage(view)
    kind, verdict = _verdict(view)
    said = partial(in_words_of, header.workload.kind)
    return Head(
        label=header.workload.label,
        target=header.workload.target or "",
        when=header.created,
        kind=kind,
        verdict=verdict,
        sentence=_sentence(view),
        usage=lines,
        usage_about=about,
        tiles=tuple(tile._replace(name=said(tile.name), below=said(tile.below)) for tile in _tiles(view)),
        remarks=tuple(beside(view.plan, data)),
        missed=f"{who(missed)[0].upper()}{who(missed)[1:]}:" if missed is not None else "",
        missed_command=command(missed, nearby(data.run_dir)) if missed is not None else "",
    )


def chosen_row(view: View) -> Row | None:
    """The row of the plan's candidate; None: there is no verdict, or eager stays."""
    verdict = view.data.verdict
    if verdict is None or verdict.decision is not Decision.USE:
        return None
    return next((row for row in view.data.rows if row["chosen"]), None)


def _verdict(view: View) -> tuple[str, str]:
    """In a few words; the sentence below says the rest."""
    verdict, row = view.data.verdict, chosen_row(view)
    if verdict is not None and row is not None and verdict.sizes is not None:
        gain = f": {times(verdict.sizes.replayed)} faster than eager" if verdict.sizes.replayed else ""
        programs = f"{len(view.plan.entries)} programs" if view.plan and len(view.plan.entries) > 1 else "one program"
        return USE, f"Use {programs} ({verdict.sizes.policy}) for the trace{gain}"
    if row is not None:
        gain = f": {times(row['speedup'])} faster than eager" if row["speedup"] is not None else ""
        return USE, f"Use {row['candidate']}{gain}"
    if verdict is not None:
        return KEEP, "Keep eager"
    if any(race.purpose in PROVING for race in view.data.races):
        return OPEN, "Measured side by side; nothing is decided"
    return OPEN, "No verdict yet: the run did not come to its end"


def _sentence(view: View) -> str:
    """The plan's, or why eager stays; of a comparison, one for each arm."""
    if view.data.verdict is None and view.data.races:
        return " ".join(arm_sentences(view.data, {}))
    return sentence(view.plan, view.data)


def _usage(view: View) -> tuple[str, tuple[str, ...]]:
    """What to say before the lines, and the lines."""
    if view.plan is None:
        return "", ()
    about, _, lines = usage(view.plan, RunDir(nearby(view.data.run_dir)).plan).partition("\n")
    return about, tuple(textwrap.dedent(lines).splitlines())


def _tiles(view: View) -> list[Tile]:
    """Of the chosen one; where there is none, what was tried."""
    data, row = view.data, chosen_row(view)
    tried = sum(not trial.candidate.is_eager for trial in data.trials.values())
    ok = sum(not trial.candidate.is_eager and trial.state == "ok" for trial in data.trials.values())
    candidates = Tile("candidates", str(tried), f"{ok} correct and timed")
    if row is None:
        eager = next((one for one in data.rows if one["speedup_from"] == "baseline"), None)
        return [candidates, *([Tile("eager", f"{number(eager['p50_ms'])} ms", "a call, median")] if eager else [])]
    warm = f"{number(row['warm_s'])} s warm" if row["warm_s"] is not None else ""
    return [
        Tile("speed-up", speed_up(row).partition(" ")[0], speed_up(row).partition(" ")[2] and f"95 % {_interval(row)}"),
        Tile("a call", f"{number(row['p50_ms'])} ms", f"eager {number(row['eager_p50_ms'])} ms"),
        Tile("first call", f"{number(row['cold_s'])} s cold", warm),
        Tile("pays back", _paid(row), "calls after a cold start"),
        Tile("memory", f"{memory(row, steady=False)} MiB", "peak"),
        candidates,
    ]


def _interval(row: Row) -> str:
    return speed_up(row).partition("[")[2].rstrip("]")


def _paid(row: Row) -> str:
    return "never" if row["break_even_calls"] is None else f"{row['break_even_calls']:,}"
