"""`compilot keys`: the keys that bundles are signed with. In: key files. Out: new, trusted or listed keys.

Only public keys are ever copied; a private key stays where it was made.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.artifacts.signing import PublicKey

app = typer.Typer(help="Make, trust and list the keys that bundles are signed with.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command("new")
def new(
    path: Annotated[Path, typer.Argument(help="Where the private key goes; the public one gets .pub added.")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make a key pair to sign bundles with."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.signing import generate_key

        key = generate_key(path)
        text = f"key {key.key_id}: private {path} (keep it secret), public {key.path} (give it to those who load)"
        _show(json, {"private": str(path), **_document(key)}, text)


@app.command("trust")
def trust(
    file: Annotated[Path, typer.Argument(help="A public key file (.pub).")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Load bundles that were signed with this key."""
    with common.guarded(debug=debug, as_json=json):
        key = add_trusted(file)
        _show(json, _document(key), f"bundles signed with key {key.key_id} are loaded from now on ({key.path})")


@app.command("ls")
def ls(json: AsJson = False, debug: Debug = False) -> None:
    """List the trusted keys."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.trust import trusted_folder, trusted_keys

        keys = trusted_keys()
        lines = [f"{key.key_id}  {key.path}" for key in keys]
        _show(json, [_document(key) for key in keys], "\n".join(lines) or f"no trusted keys ({trusted_folder()})")


def add_trusted(file: Path) -> PublicKey:
    """Copy a public key to the folder of trusted ones; one that is there already stays."""
    from compilot.artifacts.signing import PUBLIC_SUFFIX, load_public_key, public_pem
    from compilot.artifacts.trust import trusted_folder
    from compilot.files import atomic
    from compilot.files.private import private_directory

    key = load_public_key(file)
    folder = private_directory(trusted_folder())
    known = next(iter(folder.glob(f"*{key.key_id}{PUBLIC_SUFFIX}")), None)
    name = re.sub(r"[^\w.-]", "_", file.name.split(".")[0])
    path = known or folder / f"{name}-{key.key_id}{PUBLIC_SUFFIX}"
    if known is None:
        atomic.write_bytes(path, public_pem(key))
    return key._replace(path=path)


def _document(key: PublicKey) -> dict[str, Any]:
    return {"key_id": key.key_id, "public": os.fspath(key.path) if key.path else None}


def _show(as_json: bool, document: Any, text: str) -> None:
    common.print_json(document) if as_json else print(text)
