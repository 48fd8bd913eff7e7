"""`compilot ui`: your runs in the browser. Prints the address that `compilot.ui` serves, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from compilot.api import browsing
from compilot.cli import common


def ui(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Default: 8642, or any that is free.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show your runs in the browser: list, comparison, trend, reports, a tune under way. On this machine only."""

    def ready(url: str) -> None:
        common.print_json({"url": url}) if json else print(url, flush=True)
        common.tell("only you can open this address: it holds a secret. Ctrl-C ends it.")

    with common.guarded(debug=debug, as_json=json):
        browsing.ui(port=port, open_browser=open_it, ready=ready)
