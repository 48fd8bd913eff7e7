"""`compilot sentinel report FILE`: what traffic asked for that the plan does not have.

Prints what `compilot.serve.sentinel_report` returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot import serve
from compilot.cli import common
from compilot.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from compilot.serve import MissedCalls, SentinelReport

app = PlainTyper(help="Look at the event log of a server.", no_args_is_help=True)
MOST_ROWS = 20


@app.callback()
def _only() -> None:
    """Its one command has a name, so that others can join it."""


@app.command("report")
def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The event log of compilot.serve.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Say what traffic asked for that the plan does not have: sizes, modes, thread counts, and how often."""
    with common.guarded(debug=debug, as_json=json):
        found = serve.sentinel_report(file)
        common.print_json(common.document(found)) if json else _show(found)


def _show(found: SentinelReport) -> None:
    processes = "1 process" if found.processes == 1 else f"{found.processes} processes"
    if not found.missed:
        print(f"{found.path}: {processes}; every call after the swap was answered by the plan.")
    else:
        share = f" ({found.missed_calls / found.calls:.1%})" if found.calls else ""
        print(f"{found.path}: {processes}; eager answered {found.missed_calls} of {found.calls} calls{share}:")
        for one in found.missed[:MOST_ROWS]:
            print(f"  {one.calls:>9}  {_words(one)}")
        if len(found.missed) > MOST_ROWS:
            print(f"             and {len(found.missed) - MOST_ROWS} other kinds; --json has all")
    for title, lines in (("adopted since", found.adopted), ("rolled back", found.rolled_back)):
        for line in lines:
            print(f"  {title}: {line.removeprefix('rolled back: ')}")
    if found.missed:
        print("To have them in a plan, tune again: with these calls as examples, or their sizes declared dynamic.")


def _words(one: MissedCalls) -> str:
    sizes = ", ".join(f"{path} {'x'.join(map(str, size))}" for path, size in one.sizes.items())
    return f"{one.reason} [{sizes}]" if sizes and "shape" not in one.reason else one.reason
