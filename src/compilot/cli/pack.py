"""`compilot pack DIR -o BUNDLE`: a finished run as one portable file. In: run directories. Out: a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.packing import Packed


def pack(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories of 'compilot tune'; several give several entries.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle to write: model.cpbundle.")],
    folder: Annotated[
        bool, typer.Option("--folder", help="A folder instead of one file; it is read in place.")
    ] = False,
    carry_weights: Annotated[
        bool, typer.Option("--carry-weights", help="Put the model's weights in as safetensors.")
    ] = False,
    twin: Annotated[
        bool, typer.Option("--twin/--no-twin", help="Look for a form of a torch.compile plan that needs no compiler.")
    ] = True,
    sign: Annotated[Path | None, typer.Option(help="Sign with this private key (see 'compilot keys').")] = None,
    openssf_key: Annotated[
        Path | None, typer.Option(help="Write an OpenSSF model signature beside the bundle with this private key.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Pack a plan with everything it needs, so that it starts at once elsewhere."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts import openssf
        from compilot.packing import PackOptions
        from compilot.packing import pack as pack_runs
        from compilot.progress import Observer
        from compilot.showing.plain import PlainObserver

        watching = Observer() if quiet else PlainObserver()
        options = PackOptions(folder=folder, carry_weights=carry_weights, twin=twin, key=sign)
        if openssf_key is not None:
            openssf.ready_to_sign(openssf_key)
        packed = pack_runs(runs, out, options, watching)
        signature = None if openssf_key is None else openssf.sign(packed.path, openssf_key)
        show(packed, as_json=json, signature=signature)


def show(packed: Packed, *, as_json: bool, signature: Path | None = None) -> None:
    """What was made, and how to use it."""
    if as_json:
        return common.print_json(summary(packed, signature))
    manifest = packed.manifest
    print(f"\n{packed.path}: {manifest.label} on {manifest.engine}, {common.size_text(packed.size_bytes)}")
    for sentence in manifest.sentences:
        print(f"  {sentence}")
    if signature is not None:
        print(f"  OpenSSF signature: {signature}")
    print("\nUse it:\n")
    if manifest.standalone:
        print(f"    fast = compilot.load({str(packed.path)!r})             # no model object, no compiler")
    return print(f"    fast = compilot.compile(model, {str(packed.path)!r})   # with eager behind it")


def summary(packed: Packed, signature: Path | None = None) -> dict[str, Any]:
    """The same for machines."""
    manifest = packed.manifest
    return {
        "bundle": str(packed.path),
        "model": manifest.label,
        "engine": manifest.engine,
        "weights": str(manifest.weights),
        "standalone": manifest.standalone,
        "size_bytes": packed.size_bytes,
        "needs_compiler": any(entry.needs_compiler for entry in manifest.entries),
        "start_s": [entry.start_s for entry in manifest.entries],
        "sentences": list(manifest.sentences),
        "openssf_signature": None if signature is None else str(signature),
    }
