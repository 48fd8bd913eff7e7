"""`compilot trace show FILE`, `merge FILE... -o OUT`: the sizes that a program's calls have.

Prints what `compilot.read_trace` and `compilot.merge_traces` return.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import tracing
from compilot.cli import common
from compilot.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from compilot.records import Trace

app = PlainTyper(help="Show and merge traces: the sizes that a program's calls have.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace: from compilot.record, or one call per line.")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Draw the distribution of each dimension, and list the sizes that are called most."""
    with common.guarded(debug=debug, as_json=json):
        _show(tracing.read_trace(file), as_json=json)


@app.command("merge")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Traces of one model.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the sum goes; a new file.")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Add up the traces of several processes or days."""
    with common.guarded(debug=debug, as_json=json):
        _show(tracing.merge_traces(files, out), as_json=json)


def _show(trace: Trace, *, as_json: bool) -> None:
    if as_json:
        common.print_json(common.document(trace))
        return
    from rich.console import Console

    from compilot.report.trace_terminal import drawn

    console = Console(highlight=False)
    for part in drawn(trace):
        console.print(part)
