"""`compilot keys`: the keys that bundles are signed with. Prints what the functions of `compilot.keys` return."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from compilot import keys
from compilot.cli import common
from compilot.cli.plain_help import PlainTyper

app = PlainTyper(help="Make, trust and list the keys that bundles are signed with.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command("new")
def new(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the private key goes; the public one gets .pub added.")
    ],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make a key pair to sign bundles with."""
    with common.guarded(debug=debug, as_json=json):
        key = keys.new(path)
        text = f"key {key.key_id}: private {path} (keep it secret), public {key.public} (give it to those who load)"
        _show(json, key, text)


@app.command("trust")
def trust(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A public key file (.pub).")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Load bundles that were signed with this key."""
    with common.guarded(debug=debug, as_json=json):
        key = keys.trust(file)
        _show(json, key, f"bundles signed with key {key.key_id} are loaded from now on ({key.public})")


@app.command("ls")
def ls(json: AsJson = False, debug: Debug = False) -> None:
    """List the trusted keys."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.trust import trusted_folder

        found = keys.ls()
        lines = [f"{key.key_id}  {key.public}" for key in found]
        _show(json, found, "\n".join(lines) or f"no trusted keys ({trusted_folder()})")


def _show(as_json: bool, records: Any, text: str) -> None:
    common.print_json(common.document(records)) if as_json else print(text)
