"""`compilot charts RUN`: pictures of a run. Prints what `compilot.charts` returns: the files, one per line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api.charting import charts as draw
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.report.chart_files import Charts


def charts(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="For the files. Default: RUN/charts.")] = None,
    format: Annotated[  # noqa: A002  # the name of the option
        str, typer.Option(metavar="NAME", help="svg: a picture for each chart; html: one page with all of them.")
    ] = "svg",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Draw a run: its search, the Pareto front, when a start is paid back, where the seconds went, what runs where."""
    with common.guarded(debug=debug, as_json=json):
        found = draw(run, out=out, format=format)
        common.print_json(common.document(found)) if json else show(found)


def show(found: Charts) -> None:
    """The files; what could not be drawn goes to stderr."""
    for file in found.files:
        print(file.path)
    for name, why in found.left_out.items():
        common.tell(f"no chart '{name}': {why}")
