"""`compilot status PLAN [TARGET]`: is it still right? Prints what `compilot.status` returns; exit 1 if it is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import standing
from compilot.api.standing import MEASURE_BUDGET
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.api.standing import Status

OUT_OF_DATE = 1


def status(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json, a bundle or a run directory.")],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="The model as it is now: path/to/file.py:factory or package.module:factory"
        ),
    ] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Also measure its claim again.")] = False,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time to measure, besides builds: 60s, 2m.")
    ] = MEASURE_BUDGET,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Say whether a plan or a bundle is still right for this model, machine and torch, and what to do."""
    with common.guarded(debug=debug, as_json=json):
        found = standing.status(plan, target, measure=measure, budget=budget, argv=sys.argv, progress=not quiet)
        common.print_json(common.document(found)) if json else print("\n".join(lines(found)))
        if not found.right:
            raise typer.Exit(OUT_OF_DATE)


def lines(found: Status) -> list[str]:
    """The answer, what changed and whether that matters, what to do."""
    text = [f"{common.nearby(found.path)} ({found.model}, {found.created}): {found.sentence}"]
    text += [f"  {change.severity}: {change.sentence}" for change in found.changes]
    text += [f"  not compared: {words}." for words in found.not_compared]
    return [*text, f"Next: {found.advice}"]
