"""`compilot reproduce RUN`: a run's claim, measured again. Prints what `compilot.reproduce` returns.

Exit codes: 0 it holds, or it is inconclusive (said), 1 it does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import repeating
from compilot.api.repeating import USUAL_BUDGET
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.ledger.repeating import Reproduced
    from compilot.records import Comparison

DOES_NOT_HOLD = 1


def reproduce(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run directory, the beginning of an id, or a model's name (its newest)."),
    ],
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for everything but builds: 90s, 2m.")
    ] = USUAL_BUDGET,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run directory. Default: compilot-runs/reproduce-NAME-TIME.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure a run's claim again: it holds, it does not hold, or inconclusive."""
    with common.guarded(debug=debug, as_json=json):
        found = repeating.reproduce(run, budget=budget, out=out, argv=sys.argv, progress=not quiet)
        common.print_json(common.document(found)) if json else print("\n".join(lines(found)))
        if found.result == "does-not-hold":
            raise typer.Exit(DOES_NOT_HOLD)


def lines(found: Reproduced) -> list[str]:
    """The result first, then both intervals, then what else is not as it was."""
    text = [f"{found.candidate} for {found.model}: {found.result.replace('-', ' ')}: {found.because}."]
    text += [f"claimed:  {_interval(found.claimed)}", f"measured: {_interval(found.measured)}"]
    text += [f"changed:  {sentence}" for sentence in found.changes]
    text += [f"built again: {found.rebuilt}."] if found.rebuilt else []
    return [*text, f"{common.nearby(found.run_dir)}: journal.jsonl"]


def _interval(shown: Comparison | None) -> str:
    return "nothing" if shown is None else f"{shown.ratio:.2f}x (95 % {shown.low:.2f}-{shown.high:.2f})"
