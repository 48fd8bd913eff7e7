"""`compilot push`, `pull`, `store ls`, `store rm`, `store gc`: bundles in a place that many machines can reach.

In: URLs (file, s3, gs, http, sftp). Out: one line for people or one JSON document.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.artifacts.store import Pulled
    from compilot.artifacts.store.layout import StoreEntry
    from compilot.records import ModelFingerprint

app = typer.Typer(help="List, remove and clean up bundles in a store.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Url = Annotated[str, typer.Argument(help="Where the store is: /folder, s3://bucket/path, gs://, sftp://, http://.")]


def push(
    bundle: Annotated[Path, typer.Argument(help="A bundle file (see 'compilot pack').")],
    url: Url,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Put a bundle into a store, for every machine like this one."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts import store

        done = store.push(bundle, url)
        verb = "was there already" if done.was_there else "pushed"
        text = f"{verb}: {entry_line(done.entry)}{signer_text(done.entry.signed_by)}"
        _show(json, _document(done.entry) | {"was_there": done.was_there}, text)


def pull(
    url: Url,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, or a folder to write it to.")],
    model: Annotated[
        str | None,
        typer.Option(help="Which one: FILE.py:factory, a class name, or an id (model, weights, bundle) of 'store ls'."),
    ] = None,
    key: Annotated[list[Path] | None, typer.Option(help="A public key to trust besides the usual ones.")] = None,
    require_signature: Annotated[bool, typer.Option("--require-signature", help="Refuse unsigned bundles.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Get the bundle that fits this machine best, or hear why none does."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts import store
        from compilot.artifacts.bundle_trust import Trust
        from compilot.identity.machine import machine_fingerprint

        trust = Trust(keys=tuple(key or ()), require_signature=require_signature)
        done = store.pull(url, out, machine_fingerprint(), _wanted(model), trust)
        _tell_doubts(done)
        _show(
            json,
            _pulled(done),
            f"{done.path}: {entry_line(done.fit.entry)}{signer_text(done.signed_by or '')}{_transfer(done)}",
        )


@app.command("ls")
def ls(url: Url, json: AsJson = False, debug: Debug = False) -> None:
    """List the bundles in a store, the newest first."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts import store
        from compilot.artifacts.store.remote import Remote

        found = store.listing(Remote(url))
        for problem in found.problems:
            common.tell(f"warning: {problem}")
        lines = [entry_line(entry) + signer_text(entry.signed_by) for entry in found.entries]
        _show(json, [_document(entry) for entry in found.entries], "\n".join(lines) or "no bundles.")


@app.command("rm")
def rm(
    url: Url,
    bundle: Annotated[str, typer.Argument(help="Which one: its name, or the beginning of its digest in 'store ls'.")],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove one bundle from a store, at once; a name that several have is refused."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.store.removing import remove

        entry = remove(url, bundle)
        _show(json, _document(entry), f"removed: {entry_line(entry)}{signer_text(entry.signed_by)}")


@app.command("gc")
def gc(
    url: Url,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Remove all but this many bundles of each model, weights and machine.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every object and check its digest.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove what is of no use in a store: damaged, unfinished or forgotten objects."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.store.gc import collect, find_garbage
        from compilot.artifacts.store.remote import Remote

        remote = Remote(url)
        garbage = find_garbage(remote, keep=keep, verify=verify)
        if not dry_run:
            collect(remote, garbage)
        verb = "would remove" if dry_run else "removed"
        lines = [f"{verb} {one.name}: {one.why}" for one in garbage]
        _show(json, [one._asdict() for one in garbage], "\n".join(lines) or "nothing to remove.")


def entry_line(entry: StoreEntry) -> str:
    """One bundle for people."""
    machine = entry.fingerprint.machine
    size = common.size_text(entry.size_bytes)
    where = f"{machine.cpu_model}, {machine.threads} threads, torch {machine.torch}"
    weights = f", weights {entry.weights[:12]}" if entry.weights else ""
    model = f"{entry.label} ({entry.model_id}{weights})"
    return f"{entry.sha256[:12]}  {model} on {entry.engine}, {size}, made on {where}"


def signer_text(signed_by: str | None) -> str:
    """Who signed a bundle, to be put after its line; "" where nobody knows."""
    if signed_by is None:
        return ""
    return f", signed by {signed_by}" if signed_by else ", not signed"


def _wanted(model: str | None) -> str | ModelFingerprint | None:
    """A target is opened here, as 'compilot tune' would, to know what model it is."""
    if model is None or ":" not in model:
        return model
    from compilot.identity.model import model_fingerprint
    from compilot.workload.target import load_target

    return model_fingerprint(load_target(model).model, weights=True)


def _tell_doubts(done: Pulled) -> None:
    for refusal in done.skipped:
        common.tell(f"skipped: {refusal}")
    if done.signed_by is None:
        common.tell("warning: it is not signed: whoever can write to this store decides what runs here.")
    for difference in done.fit.unproven:
        common.tell(f"warning: {difference.sentence} Its speed is unproven here.")
    if done.fit.note:
        common.tell(f"note: {done.fit.note}.")


def _transfer(done: Pulled) -> str:
    if done.transfer is None:
        return "; was there already"
    resumed = done.transfer.resumed_bytes
    return f"; continued after {common.size_text(resumed)}" if resumed else ""


def _pulled(done: Pulled) -> dict[str, Any]:
    return _document(done.fit.entry) | {
        "path": str(done.path),
        "signed_by": done.signed_by,
        "note": done.fit.note,
        "skipped": list(done.skipped),
        "unproven": [difference.sentence for difference in done.fit.unproven],
        "fetched_bytes": done.transfer.fetched_bytes if done.transfer else 0,
        "resumed_bytes": done.transfer.resumed_bytes if done.transfer else 0,
    }


def _document(entry: StoreEntry) -> dict[str, Any]:
    import msgspec

    return {"model_id": entry.model_id, "signed_by": entry.signed_by, **msgspec.to_builtins(entry)}


def _show(as_json: bool, document: Any, text: str) -> None:
    common.print_json(document) if as_json else print(text)
