"""`compilot pack DIR -o BUNDLE`: a finished run as one portable file. Prints what `compilot.pack` made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compilot.api import bundling
from compilot.api.bundling import PackedBundle
from compilot.cli import common


def pack(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Run directories of 'compilot tune'; several give several entries."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The bundle to write: model.cpbundle.")],
    folder: Annotated[
        bool, typer.Option("--folder", help="A folder instead of one file; it is read in place.")
    ] = False,
    carry_weights: Annotated[
        bool, typer.Option("--carry-weights", help="Put the model's weights in as safetensors.")
    ] = False,
    twin: Annotated[
        bool, typer.Option("--twin/--no-twin", help="Look for a form of a torch.compile plan that needs no compiler.")
    ] = True,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign with this private key (see 'compilot keys').")
    ] = None,
    openssf_key: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="Write an OpenSSF model signature beside the bundle with this private key."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Pack a plan with everything it needs, so that it starts at once elsewhere."""
    with common.guarded(debug=debug, as_json=json):
        packed = bundling.pack(
            runs,
            out,
            folder=folder,
            carry_weights=carry_weights,
            twin=twin,
            sign=sign,
            openssf_key=openssf_key,
            progress=not quiet,
        )
        show(packed, as_json=json)


def show(packed: PackedBundle, *, as_json: bool) -> None:
    """What was made, and how to use it."""
    if as_json:
        return common.print_json(common.document(packed))
    print(f"\n{packed.bundle}: {packed.model} on {packed.engine}, {common.size_text(packed.size_bytes)}")
    for sentence in packed.sentences:
        print(f"  {sentence}")
    if packed.openssf_signature is not None:
        print(f"  OpenSSF signature: {packed.openssf_signature}")
    print("\nUse it:\n")
    if packed.standalone:
        print(f"    fast = compilot.load({str(packed.bundle)!r})             # no model object, no compiler")
    return print(f"    fast = compilot.compile(model, {str(packed.bundle)!r})   # with eager behind it")
