"""`compilot verify BUNDLE`: is it whole, is it trusted, does it fit here, how fast does it start?

Prints what `compilot.verify` returns, one line per question; exit code 0 when the bundle may be used here, 1 when not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compilot.api.verifying import OpenSSFSigner, Verified
from compilot.api.verifying import verify as check
from compilot.cli import common


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="PATH", help="A bundle: a file or a folder.")],
    time: Annotated[
        bool, typer.Option("--time", help="Start it in a fresh process and show what each step takes.")
    ] = False,
    key: Annotated[list[Path] | None, typer.Option(metavar="KEY", help="A public key to trust. Repeatable.")] = None,
    require_signature: Annotated[bool, typer.Option("--require-signature", help="Refuse unsigned bundles.")] = False,
    openssf_key: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="Check the OpenSSF model signature too, by this public key, before all else."),
    ] = None,
    openssf_signature: Annotated[
        Path | None, typer.Option(metavar="FILE", help="That signature, where it is not BUNDLE.sig.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Check a bundle: digests, trust, fit to this machine, and the time it takes to start."""
    with common.guarded(debug=debug, as_json=json):
        found = check(
            bundle,
            time=time,
            trusted_keys=key or (),
            require_signature=require_signature,
            openssf_key=openssf_key,
            openssf_signature=openssf_signature,
        )
        common.print_json(common.document(found)) if json else show(found, timed=time)
    if not found.ok:
        raise typer.Exit(1)


def show(found: Verified, *, timed: bool) -> None:
    """The findings, a line each."""
    if found.refused is not None:
        print(f"refused: {found.refused}")
        return _show_openssf(found.openssf)
    print(f"{found.bundle}: {found.model} on {found.engine}, packed {found.created}")
    files = "1 file" if found.files == 1 else f"{found.files} files"
    print(f"  whole    {files}, {common.size_text(found.size_bytes or 0)}, every digest right")
    print(f"  trusted  {found.trusted_by}")
    _show_openssf(found.openssf)
    print(f"  fits     {'yes' if found.fits else 'no'}")
    for difference in found.differences:
        print(f"           {difference.severity}: {difference.sentence}")
    print(f"  needs    {_needs(found)}")
    return _show_times(found.startup) if timed and found.fits else None


def _show_openssf(openssf: OpenSSFSigner | None) -> None:
    if openssf is not None and openssf.ok:
        print(f"  openssf  signed with key {openssf.key_sha256[:16]} ({openssf.signature})")


def _needs(found: Verified) -> str:
    parts = [] if found.standalone else ["the model object"]
    parts += ["a C++ compiler"] if found.needs_compiler else []
    if names := found.needs_operators:
        word, them = ("operators", "them") if len(names) > 1 else ("operator", "it")
        parts.append(f"the {word} {', '.join(names)} (import the module that registers {them})")
    took = sum(seconds or 0.0 for seconds in found.start_s) if found.needs_compiler else 0.0
    starts = f"; started in {took:.0f} s where it was packed" if took else ""
    return (" and ".join(parts) or "nothing but torch and its engine") + starts


def _show_times(steps: dict[str, float] | None) -> None:
    if steps is None:
        print("\nIt needs its model, so it cannot be started here; see `startup` of what compilot.compile returns.")
        return
    print("\n  start-up in a fresh process")
    for name, seconds in steps.items():
        print(f"    {name:<16} {seconds * 1000:8.1f} ms")
    own = sum(seconds for name, seconds in steps.items() if name != "import torch")
    print(f"    {'first answer':<16} {own * 1000:8.1f} ms after torch is imported")
