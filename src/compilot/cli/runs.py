"""`compilot history`, `show`, `compare`: runs that were made before. Prints what the functions of that name return."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import runs
from compilot.api.runs import USUAL_LIMIT
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.ledger.changes import ComparedRuns
    from compilot.ledger.entries import RunEntry
    from compilot.ledger.history import History
    from compilot.ledger.shown import ShownRun

LONGEST_MODEL = 24  # characters; the whole name is in the JSON document
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, the beginning of an id, or a model's name (its newest).")
]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="The run to compare it with, named in the same way.")]
Store = Annotated[str | None, typer.Option(metavar="URL", help="Where a team's runs are: /folder, s3://bucket/path.")]


def history(
    model: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only runs whose model, target or folder has this in it.")
    ] = None,
    scan: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="First add every run below this folder to your list.")
    ] = None,
    store: Store = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most so many; 0 for all.")] = USUAL_LIMIT,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List your runs, the newest first: model, result, machine, commit."""
    with common.guarded(debug=debug, as_json=json):
        found = runs.history(model=model, scan=scan, store=store, limit=limit)
        for problem in found.problems:
            common.tell(f"warning: {problem}")
        common.print_json(common.document(found)) if json else print("\n".join(lines(found, limit)))


def show(run: Run, store: Store = None, json: AsJson = False, debug: Debug = False) -> None:
    """Show one run in full: what was asked for, every candidate, the result."""
    with common.guarded(debug=debug, as_json=json):
        found = runs.show(run, store=store)
        common.print_json(common.document(found)) if json else _print(found)


def compare(run: Run, other: Other, store: Store = None, json: AsJson = False, debug: Debug = False) -> None:
    """Show what changed from one run to another: code, versions, machine, options, numbers."""
    with common.guarded(debug=debug, as_json=json):
        found = runs.compare(run, other, store=store)
        common.print_json(common.document(found)) if json else print("\n".join(changes(found)))


def lines(found: History, limit: int) -> list[str]:
    """One line for each run, in columns; limit: of runs that were asked for, 0 for all."""
    if not found.runs:
        none = "no run here is about that." if found.known else "no runs yet; 'compilot tune TARGET' makes one."
        return [none]
    here = os.path.join(os.getcwd(), "")
    table = [_cells(entry, here) for entry in found.runs]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    cut = 0 < limit == len(found.runs) < found.known
    return [*text, f"the newest {limit}; --limit 0 shows all."] if cut else text


def _cells(entry: RunEntry, here: str) -> tuple[str, ...]:
    from compilot.ledger import words

    versions = f"torch {entry.torch}" if entry.torch else "-"
    model = entry.model if len(entry.model) <= LONGEST_MODEL else f"...{entry.model[3 - LONGEST_MODEL :]}"
    told = (words.result_words(entry), words.tried_words(entry), versions, words.commit_words(entry))
    return (entry.id or "-", words.when_words(entry), model or "-", *told, entry.run_dir.removeprefix(here))


def _print(found: ShownRun) -> None:
    """The same table and sentence as after the run."""
    from rich.console import Console

    from compilot.report import RunData, terminal

    console = Console()
    header, rows = found.header, list(found.rows)
    data = RunData(Path(found.run.run_dir), header, None, 0.0, {}, (), {}, None, rows, header)
    for line in facts(found):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print()
    console.print(terminal.table(data, width=console.width), *terminal.legend(data, console.width), sep="\n")
    console.print()
    console.print(found.sentence, highlight=False, markup=False)


def facts(found: ShownRun) -> list[str]:
    """Whose run it is, and what was asked for."""
    run, machine = found.run, found.header.fingerprint.machine
    commit = f", commit {run.commit[:12]}{' with changes' if run.dirty else ''}" if run.commit else ""
    states = ", ".join(f"{number} {state}" for state, number in Counter(run.trials).most_common())
    return [
        f"run {run.id}: {run.model}, {run.created}, {run.state}",
        f"target: {run.target or 'Python objects'}{commit}",
        f"asked for: {run.objective}, budget {run.budget_s:g} s",
        f"machine: {machine.cpu_model}, {machine.threads} threads, torch {machine.torch}, Python {machine.python}",
        f"candidates: {states or 'none'}",
        f"directory: {run.run_dir}",
    ]


def changes(found: ComparedRuns) -> list[str]:
    """What changed, by area."""
    text = [f"{one.id} ({one.model}, {one.created})" for one in (found.first, found.second)]
    shown = [f"{text[0]} -> {text[1]}: {found.sentence}"]
    area = ""
    for change in found.changes:
        shown += [f"{change.area}:"] if change.area != area else []
        shown.append(f"  {change.sentence}")
        area = change.area
    return shown + [f"not compared: {words}" for words in found.not_compared]
