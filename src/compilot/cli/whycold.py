"""`compilot why-cold A [B]`: what changed between two starts. Prints what `compilot.why_cold` returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api.whycold import why_cold as ask
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.diagnose.cachemiss import ColdCauses


def why_cold(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="What was built: a run directory, plan.json, bundle or key.json.")
    ],
    after: Annotated[
        Path | None,
        typer.Argument(
            metavar="AFTER", help="The cold start. Default: the last one on this machine, or this machine now."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Say what changed between two starts, so that the second found nothing in the compile cache."""
    with common.guarded(debug=debug, as_json=json):
        found = ask(before, after)
        common.print_json(common.document(found)) if json else print("\n".join(lines(found)))


def lines(found: ColdCauses) -> list[str]:
    """The answer for people: causes, and what could not be looked at."""
    from compilot.diagnose.cachemiss import UNKNOWN

    if found.answer is not None:
        return [found.answer]
    if found.causes:
        text = [f"Compared with {found.compared_with}, this start was cold because:"]
    else:
        text = [f"Compared with {found.compared_with}: {UNKNOWN}."]
    for number, cause in enumerate(found.causes, 1):
        text += [f"{number}. {cause.sentence}", f"   {cause.advice}"]
    if found.not_compared:
        unknown = [f"- {words}" for words in found.not_compared]
        text += ["Not compared, because one of the two has no record of it:", *unknown]
    return text
