"""`compilot verify BUNDLE`: is it whole, is it trusted, does it fit here, how fast does it start?

In: a bundle. Out: one line per question; exit code 0 when it may be used here, 1 when not. Nothing of the bundle is
run unless every answer before is yes. With --time a fresh process starts it, and each step's share is shown. With
--openssf-key an OpenSSF model signature is asked for first, besides the usual trust and not in its place.
"""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.artifacts.container import Container

LIMIT_S = 600.0  # a start that takes longer is not one
BESIDE_LIBRARY = "artifacts/*/model-*.json"  # what an AOTInductor library calls by name


def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle: a file or a folder.")],
    time: Annotated[
        bool, typer.Option("--time", help="Start it in a fresh process and show what each step takes.")
    ] = False,
    key: Annotated[list[Path] | None, typer.Option(help="A public key to trust. Repeatable.")] = None,
    require_signature: Annotated[bool, typer.Option("--require-signature", help="Refuse unsigned bundles.")] = False,
    openssf_key: Annotated[
        Path | None, typer.Option(help="Check the OpenSSF model signature too, by this public key, before all else.")
    ] = None,
    openssf_signature: Annotated[Path | None, typer.Option(help="That signature, where it is not BUNDLE.sig.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Check a bundle: digests, trust, fit to this machine, and the time it takes to start."""
    from compilot.errors import BundleError

    with common.guarded(debug=debug, as_json=json):
        if not bundle.exists():
            raise BundleError(f"there is no bundle at {bundle}; check the path.")
        openssf = None if openssf_key is None else {"ok": False}
        try:
            openssf = openssf_signer(bundle, openssf_key, openssf_signature)
            found = examine(bundle, key or [], require_signature)
            if time and found["fits"]:
                found["startup"] = start_up(bundle, key or [], require_signature) if found["standalone"] else None
        except BundleError as refused:
            found = {"bundle": str(bundle), "fits": False, "refused": str(refused)}
        found["openssf"] = openssf
        common.print_json(found) if json else show(found, timed=time)
    if not found["fits"]:
        raise typer.Exit(1)


def openssf_signer(bundle: Path, key: Path | None, signature: Path | None) -> dict[str, Any] | None:
    """Who signed it by OpenSSF model signing; nothing if nobody asked."""
    from compilot.errors import InputError

    if key is None:
        if signature is not None:
            raise InputError("--openssf-signature needs --openssf-key: the public key to check it with.")
        return None
    from compilot.artifacts.openssf import check

    signer = check(bundle, key, signature)
    return {"ok": True, "signature": str(signer.signature), "key_sha256": signer.key_sha256}


def examine(bundle: Path, keys: list[Path], require_signature: bool) -> dict[str, Any]:
    """Everything there is to know without running any of it."""
    from compilot.artifacts.bundle import check_files, open_bundle
    from compilot.artifacts.bundle_trust import Trust
    from compilot.runtime.staleness import machine_differences

    with open_bundle(bundle, Trust(keys, require_signature)) as opened:
        checked = check_files(opened.container, opened.manifest)
        manifest = opened.manifest
        differing = machine_differences(manifest)
        return {
            "bundle": str(bundle),
            "model": manifest.label,
            "engine": manifest.engine,
            "created": manifest.created,
            "digest": opened.digest,
            "trusted_by": opened.trusted_by,
            "files": len(manifest.files),
            "size_bytes": checked,
            "weights": str(manifest.weights),
            "standalone": manifest.standalone,
            "needs_compiler": any(entry.needs_compiler for entry in manifest.entries),
            "needs_operators": operators_needed(opened.container),
            "start_s": [entry.start_s for entry in manifest.entries],
            "fits": not any(d.severity == "unsafe" for d in differing),
            "differences": [{"severity": str(d.severity), "sentence": d.sentence} for d in differing],
            "sentences": list(manifest.sentences),
        }


def operators_needed(container: Container) -> list[str]:
    """Operators that its libraries call and that torch alone does not have."""
    from compilot._torch import operators
    from compilot.artifacts.container import read

    beside = [(name, size) for name, size in container.sizes.items() if fnmatch(name, BESIDE_LIBRARY)]
    return operators.unregistered(
        called for name, size in beside for called in operators.named_in(read(container, name, size))
    )


def start_up(bundle: Path, keys: list[Path], require_signature: bool) -> dict[str, float]:
    """Seconds of each step in a fresh process."""
    import msgspec

    from compilot.errors import BundleError

    command = [sys.executable, "-m", "compilot.cli.startup", str(bundle)]
    command += [word for key in keys for word in ("--keys", str(key))]
    command += ["--require-signature"] if require_signature else []
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["no word"])[-1]
        raise BundleError(f"{bundle} did not start: {last}")
    told = msgspec.json.decode(run.stdout.splitlines()[-1])
    if "refused" in told:
        raise BundleError(told["refused"])
    steps: dict[str, float] = told["steps"]
    return steps


def show(found: dict[str, Any], *, timed: bool) -> None:
    """The findings, a line each."""
    if "refused" in found:
        print(f"refused: {found['refused']}")
        return _show_openssf(found["openssf"])
    print(f"{found['bundle']}: {found['model']} on {found['engine']}, packed {found['created']}")
    files = "1 file" if found["files"] == 1 else f"{found['files']} files"
    print(f"  whole    {files}, {common.size_text(found['size_bytes'])}, every digest right")
    print(f"  trusted  {found['trusted_by']}")
    _show_openssf(found["openssf"])
    print(f"  fits     {'yes' if found['fits'] else 'no'}")
    for difference in found["differences"]:
        print(f"           {difference['severity']}: {difference['sentence']}")
    print(f"  needs    {_needs(found)}")
    return _show_times(found["startup"]) if timed and found["fits"] else None


def _show_openssf(openssf: dict[str, Any] | None) -> None:
    if openssf is not None and openssf["ok"]:
        print(f"  openssf  signed with key {openssf['key_sha256'][:16]} ({openssf['signature']})")


def _needs(found: dict[str, Any]) -> str:
    parts = [] if found["standalone"] else ["the model object"]
    parts += ["a C++ compiler"] if found["needs_compiler"] else []
    if names := found["needs_operators"]:
        word, them = ("operators", "them") if len(names) > 1 else ("operator", "it")
        parts.append(f"the {word} {', '.join(names)} (import the module that registers {them})")
    took = sum(seconds or 0.0 for seconds in found["start_s"]) if found["needs_compiler"] else 0.0
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
