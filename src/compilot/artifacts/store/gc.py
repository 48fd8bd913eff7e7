"""Cleaning a store. In: a store. Out: what is of no use there, with the reason, and its removal.

Of no use: objects without an entry (after a day: a push may be under way), entries without an object, objects with a
wrong size (with `verify`: a wrong digest), index files that are no JSON or lie under a wrong name, names of models
without bundles, uploads that were never finished; and, only when asked for, all but the newest bundles of each model,
set of weights and machine.
Never touched: entries of another version of compilot, and every object that a file in the index names.
The order matters: an entry goes before its object, so that nobody is sent to something that is gone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator

from compilot.artifacts.store.fetching import CHUNK
from compilot.artifacts.store.layout import (
    INDEX,
    NAMES,
    OBJECTS,
    StoreEntry,
    Unreadable,
    is_index_name,
    named_objects,
    object_digest,
    parse_entry,
    parse_model_name,
)
from compilot.artifacts.store.remote import UPLOADS, Remote
from compilot.records import Record

UNDER_WAY_S = 24 * 3600  # longer than any upload


class Garbage(Record, frozen=True, kw_only=True):
    """One file of no use."""

    name: str  # in the store
    why: str
    size_bytes: int | None  # None: it is no bundle, or its size is not known


def find_garbage(remote: Remote, *, keep: int | None = None, verify: bool = False) -> list[Garbage]:
    """What can go, entries before objects; keep: how many bundles of each model, weights and machine stay."""
    indexed = list(remote.sizes(INDEX))  # before the objects: what a push adds meanwhile must not look half gone
    parsed = _parse(remote, indexed)
    objects = {name: size for name, size in remote.sizes(OBJECTS).items() if object_digest(name)}
    broken = {name: one.why for name, one in parsed.items() if isinstance(one, Unreadable) and one.is_garbage}
    entries = {name: one for name, one in parsed.items() if isinstance(one, StoreEntry)}
    foreign = _named(name for name in indexed if name not in entries)
    damaged = dict(_damaged(remote, entries, {n: s for n, s in objects.items() if n not in foreign}, verify))
    gone = {name: "its object is not there" for name, entry in entries.items() if entry.object_name not in objects}
    gone |= {name: "its object is damaged" for name, entry in entries.items() if entry.object_name in damaged}
    gone |= {name: "it has a newer name, too" for name, entry in entries.items() if _is_old_name(name, entry, entries)}
    gone |= dict.fromkeys(_surplus(entries, gone, keep), f"older than the newest {keep}")
    kept = foreign | {entry.object_name for name, entry in entries.items() if name not in gone}
    loose = dict(_loose(remote, objects, kept, {entry.object_name for entry in entries.values()}))
    unused = _unused_names(remote, {name for name in indexed if name not in gone})
    reasons = broken | gone | loose | damaged | unused | _uploads(remote)
    return [Garbage(name=name, why=why, size_bytes=objects.get(name)) for name, why in reasons.items()]


def collect(remote: Remote, garbage: list[Garbage]) -> None:
    """Remove it, in the order found."""
    remote.delete([one.name for one in garbage])


def _parse(remote: Remote, indexed: Iterable[str]) -> dict[str, StoreEntry | Unreadable]:
    names = [name for name in indexed if is_index_name(name)]
    return {name: parse_entry(name, data) for name, data in remote.read(names).items()}


def _named(index_names: Iterable[str]) -> set[str]:
    """Objects that belong to somebody, by the names of index files that this compilot does not understand."""
    return {name for one in index_names for name in named_objects(one)}


def _damaged(
    remote: Remote, entries: dict[str, StoreEntry], objects: dict[str, int | None], verify: bool
) -> Iterator[tuple[str, str]]:
    right = {entry.object_name: entry.size_bytes for entry in entries.values()}
    for name, size in objects.items():
        size = remote.size(name) if size is None else size
        if name in right and size != right[name]:
            yield name, f"it has {size} bytes instead of {right[name]}"
        elif verify and _digest(remote, name, size or 0) != object_digest(name):
            yield name, "its digest is not the one in its name"


def _digest(remote: Remote, name: str, size: int) -> str:
    digest = hashlib.sha256()
    for start in range(0, size, CHUNK):
        digest.update(remote.read_range(name, start, min(start + CHUNK, size)))
    return digest.hexdigest()


def _is_old_name(name: str, entry: StoreEntry, entries: dict[str, StoreEntry]) -> bool:
    return name != entry.index_name and entry.index_name in entries


def _unused_names(remote: Remote, indexed: set[str]) -> dict[str, str]:
    """Names of models that have no entry any more."""
    there = {name.split("/")[1] for name in indexed}
    named = {name: parse_model_name(name) for name in remote.sizes(NAMES)}
    return {name: "its model has no bundle" for name, one in named.items() if one and one.model not in there}


def _surplus(entries: dict[str, StoreEntry], gone: dict[str, str], keep: int | None) -> Iterator[str]:
    """Names beyond the newest `keep` in each folder of the index, each set of weights on its own."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(entries.keys() - gone.keys(), key=lambda name: entries[name].created, reverse=True):
        groups.setdefault((name.rpartition("/")[0], entries[name].weights), []).append(name)
    for names in groups.values():
        yield from names[keep:] if keep is not None else ()


def _loose(
    remote: Remote, objects: dict[str, int | None], kept: set[str], known: set[str]
) -> Iterator[tuple[str, str]]:
    """Objects that no remaining entry names; those that none ever named may be on their way in."""
    for name in objects.keys() - kept:
        if name in known:
            yield name, "its entry goes"
        elif _is_old(remote, name):
            yield name, "no entry names it"


def _uploads(remote: Remote) -> dict[str, str]:
    return {name: "its upload was never finished" for name in remote.sizes(UPLOADS) if _is_old(remote, name)}


def _is_old(remote: Remote, name: str) -> bool:
    written = remote.modified(name)
    return written is not None and time.time() - written > UNDER_WAY_S
