"""`compilot cache`: the unpacked bundles on this machine. Prints what the functions of `compilot.cache` return."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from compilot import cache
from compilot.cli import common
from compilot.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from compilot.artifacts.cache import CacheEntry, Stays

app = PlainTyper(help="List, check and shrink the cache of unpacked bundles.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
DAMAGED = 1  # exit code of verify
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


@app.command("ls")
def ls(json: AsJson = False, debug: Debug = False) -> None:
    """List the unpacked bundles, the most recently used one first."""
    with common.guarded(debug=debug, as_json=json):
        _show(json, cache.ls(), _nothing())


@app.command("verify")
def verify(json: AsJson = False, debug: Debug = False) -> None:
    """Check every file of every unpacked bundle against its digest; exit code 1 if one is not shown to be whole."""
    with common.guarded(debug=debug, as_json=json):
        entries = cache.verify()
        _show(json, entries, _nothing())
        if any(entry.state != "ready" for entry in entries):
            common.tell("remove the bad ones with 'compilot cache prune --damaged'; each is unpacked again when used.")
            raise typer.Exit(DAMAGED)


@app.command("prune")
def prune(
    max_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="How large the cache may stay, 10GiB if nothing else is said; 0 empties it."),
    ] = None,
    damaged: Annotated[bool, typer.Option("--damaged", help="Check all digests; also remove what is bad.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove the least recently used bundles beyond a size; those in use stay."""
    with common.guarded(debug=debug, as_json=json):
        done = cache.prune(max_size, damaged=damaged)
        freed = common.size_text(sum(entry.size_bytes for entry in done.removed))
        _show(json, done.removed, "nothing was removed." if done.stay else "nothing to remove.")
        if done.removed and not json:
            print(f"removed {len(done.removed)} bundle{'s' if len(done.removed) > 1 else ''}, {freed}.")
        if done.stay:
            common.tell(_staying(done.stay))


def _nothing() -> str:
    from compilot.artifacts.cache import bundles_folder

    return f"{bundles_folder()} holds no unpacked bundles."


def _staying(stay: Sequence[Stays]) -> str:
    """ "3 that were to go stay: 2 in use, 1 opened in the last ten minutes."."""
    reasons = ", ".join(f"{count} {why}" for why, count in Counter(stay).items())
    return f"{len(stay)} that were to go stay: {reasons}."


def _show(as_json: bool, entries: Sequence[CacheEntry], nothing: str) -> None:
    if as_json:
        common.print_json(common.document(entries))
    else:
        print("\n".join(_line(entry) for entry in entries) or nothing)


def _line(entry: CacheEntry) -> str:
    notes = [str(entry.state), *(["in use"] if entry.in_use else []), *([entry.why] if entry.why else [])]
    name = f"{entry.label or 'unknown'} on {entry.engine}" if entry.engine else entry.label or "unknown"
    size = common.size_text(entry.size_bytes)
    return f"{entry.digest[:12]}  {size:>10}  used {_ago(time.time() - entry.used_s)}  {name}: {', '.join(notes)}"


def _ago(seconds: float) -> str:
    """A time span in the unit that is nearest to it."""
    if seconds < MINUTE_S:
        return "just now"
    unit, name = next(one for one in ((DAY_S, "days"), (HOUR_S, "hours"), (MINUTE_S, "minutes")) if seconds >= one[0])
    return f"{seconds / unit:.1f} {name} ago"
