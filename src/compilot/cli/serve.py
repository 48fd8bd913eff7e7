"""`compilot serve TARGET`: a target as a web service. Prints the address that `compilot.serve.run` serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compilot import serve as serving
from compilot.cli import common


def serve(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="path/to/file.py:factory or package.module:factory.")],
    plan: Annotated[
        str | None,
        typer.Option(metavar="PLAN", help="A plan, a bundle, or a store's URL. Default: build one that is proven."),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes any that is free.")] = 8000,
    shadow: Annotated[float, typer.Option(metavar="SHARE", help="Of the calls: how many are compared.")] = 0.01,
    require_fast: Annotated[bool, typer.Option("--require-fast", help="Not ready before the plan is live.")] = False,
    at_once: Annotated[int, typer.Option(min=0, metavar="N", help="Calls at the same time. 0: one per core.")] = 0,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Where events go. Default: the cache.")] = None,
    key: Annotated[list[Path] | None, typer.Option(metavar="KEY", help="A public key to trust. Repeatable.")] = None,
    require_signature: Annotated[bool, typer.Option("--require-signature", help="Refuse unsigned bundles.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Serve a model: eager answers at once, the plan takes over when it is proven, and gives way when it drifts."""

    def ready(url: str) -> None:
        common.print_json({"url": url}) if json else print(url, flush=True)
        common.tell(f"POST {url}predict, or open {url} to look at it. Ctrl-C ends it.")

    with common.guarded(debug=debug, as_json=json):
        serving.run(
            target,
            plan=plan,
            host=host,
            port=port,
            ready=ready,
            at_once=at_once,
            shadow=shadow,
            require_fast=require_fast,
            log=log,
            trusted_keys=key or (),
            require_signature=require_signature,
        )
