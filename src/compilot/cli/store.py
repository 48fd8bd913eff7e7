"""`compilot push`, `pull`, `store ls`, `store rm`, `store gc`: bundles in a place that many machines can reach.

Prints what `compilot.push`, `compilot.pull` and the functions of `compilot.store` return.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot import store
from compilot.api import sharing
from compilot.cli import common
from compilot.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from compilot.artifacts.store.answers import PulledBundle
    from compilot.artifacts.store.layout import StoreEntry

app = PlainTyper(help="List, remove and clean up bundles in a store.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Url = Annotated[
    str, typer.Argument(metavar="URL", help="Where the store is: /folder, s3://bucket/path, gs://, sftp://, http://.")
]


def push(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle file (see 'compilot pack'), or a run directory.")
    ],
    url: Url,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Put a bundle into a store, for every machine like this one; or a run, for everybody to look at."""
    with common.guarded(debug=debug, as_json=json):
        done = sharing.push(bundle, url)
        verb = "was there already" if done.was_there else "pushed"
        from compilot.artifacts.store.layout import StoreEntry

        if not isinstance(done, StoreEntry):
            return _show(json, common.document(done), f"{verb}: run {done.run.id} of {done.run.model}, {done.url}")
        return _show(json, _document(done), f"{verb}: {entry_line(done)}{signer_text(done.signed_by)}")


def pull(
    url: Url,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PATH", help="The file to write, or a folder to write it to.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which one: FILE.py:factory, a class name, or an id (model, weights, bundle) of 'store ls'.",
        ),
    ] = None,
    key: Annotated[
        list[Path] | None, typer.Option(metavar="KEY", help="A public key to trust besides the usual ones.")
    ] = None,
    require_signature: Annotated[bool, typer.Option("--require-signature", help="Refuse unsigned bundles.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Get the bundle that fits this machine best, or an error that says why none does."""
    with common.guarded(debug=debug, as_json=json):
        done = sharing.pull(url, out, model=model, trusted_keys=key or (), require_signature=require_signature)
        _tell_doubts(done)
        text = f"{done.path}: {entry_line(done)}{signer_text(done.signed_by or '')}{_transfer(done)}"
        _show(json, _document(done), text)


@app.command("ls")
def ls(url: Url, json: AsJson = False, debug: Debug = False) -> None:
    """List the bundles in a store, the newest first."""
    with common.guarded(debug=debug, as_json=json):
        found = store.ls(url)
        for problem in found.problems:
            common.tell(f"warning: {problem}")
        lines = [entry_line(entry) + signer_text(entry.signed_by) for entry in found.entries]
        _show(json, [_document(entry) for entry in found.entries], "\n".join(lines) or "no bundles.")


@app.command("rm")
def rm(
    url: Url,
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="Which one: its name, or the beginning of its digest in 'store ls'.")
    ],
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove one bundle from a store, at once; a name that several have is refused."""
    with common.guarded(debug=debug, as_json=json):
        entry = store.rm(url, bundle)
        _show(json, _document(entry), f"removed: {entry_line(entry)}{signer_text(entry.signed_by)}")


@app.command("gc")
def gc(
    url: Url,
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Remove all but this many bundles of each model, weights and machine."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every object and check its digest.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove what is of no use in a store: damaged, unfinished or forgotten objects."""
    with common.guarded(debug=debug, as_json=json):
        garbage = store.gc(url, keep=keep, verify=verify, dry_run=dry_run)
        verb = "would remove" if dry_run else "removed"
        lines = [f"{verb} {one.name}: {one.why}" for one in garbage]
        _show(json, common.document(garbage), "\n".join(lines) or "nothing to remove.")


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


def _tell_doubts(done: PulledBundle) -> None:
    for refusal in done.skipped:
        common.tell(f"skipped: {refusal}")
    if done.signed_by is None:
        common.tell("warning: it is not signed: whoever can write to this store decides what runs here.")
    for difference in done.unproven:
        common.tell(f"warning: {difference} Its speed is unproven here.")
    if done.because:
        common.tell(f"note: {done.because}.")
    if done.note:
        common.tell(f"note: {done.note}.")


def _transfer(done: PulledBundle) -> str:
    if not done.fetched_bytes and not done.resumed_bytes:
        return "; was there already"
    return f"; continued after {common.size_text(done.resumed_bytes)}" if done.resumed_bytes else ""


def _document(entry: StoreEntry) -> dict[str, Any]:
    """The record, with the id that `pull --model` takes; who signed it is there even where nobody knows."""
    return {"model_id": entry.model_id, "signed_by": entry.signed_by, **common.document(entry)}


def _show(as_json: bool, document: Any, text: str) -> None:
    common.print_json(document) if as_json else print(text)
