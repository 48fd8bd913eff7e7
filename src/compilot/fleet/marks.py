"""What a store remembers of a fleet's work: one small file for each line and machine that is done.

    fleet/MODEL/MACHINE/KEY.json

In: a store, keys of jobs. Out: marks that still hold: the bundle that a mark names must be in the store, whole and
listed, or the mark counts for nothing. A mark decides only what is skipped; what a bundle is, the bundle says itself.
Two fleets at once write the same marks: there is no lock to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from compilot.artifacts.store.layout import StoreEntry, machine_id, model_id, parse_entry
from compilot.artifacts.store.remote import Remote
from compilot.records import MachineFingerprint, ModelFingerprint, Record, encode

MARKS = "fleet"
MARK_SCHEMA = 1


class Mark(Record, frozen=True, kw_only=True):
    """One line that is done."""

    schema: int
    key: str
    name: str  # of the line, for people
    because: str
    bundle: str = ""  # SHA-256; "": eager is kept
    index_name: str = ""  # of the bundle's entry
    engine: str = ""
    speedup: float | None = None
    seconds: float = 0.0
    created: str = ""
    compilot: str = ""


def mark_name(key: str, model: ModelFingerprint, machine: MachineFingerprint) -> str:
    """Where the mark of a job lies."""
    return f"{MARKS}/{model_id(model)}/{machine_id(machine)}/{key}.json"


def write(remote: Remote, name: str, mark: Mark) -> None:
    """After the bundle is there."""
    remote.put_bytes(name, encode(mark))


def read(remote: Remote, names: Mapping[str, str], signer: str) -> dict[str, Mark]:
    """The marks that hold, by key; names: key -> name. signer: the key that must have signed, "" for any."""
    found = remote.read(list(names.values()))
    marks = {key: _parsed(found[name], key) for key, name in names.items() if name in found}
    known = {key: mark for key, mark in marks.items() if mark is not None}
    listed = _listed(remote, [mark for mark in known.values() if mark.bundle])
    return {key: mark for key, mark in known.items() if not mark.bundle or _holds(mark, listed, signer)}


def _parsed(data: bytes, key: str) -> Mark | None:
    """A mark that cannot be read counts for nothing."""
    try:
        mark = msgspec.json.decode(data, type=Mark)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return mark if mark.key == key and mark.schema == MARK_SCHEMA else None


def _listed(remote: Remote, marks: list[Mark]) -> dict[str, StoreEntry]:
    """The entries of their bundles whose objects are there."""
    found = remote.read([mark.index_name for mark in marks])
    entries = {name: parse_entry(name, data) for name, data in found.items()}
    return {
        name: entry
        for name, entry in entries.items()
        if isinstance(entry, StoreEntry) and remote.size(entry.object_name) == entry.size_bytes
    }


def _holds(mark: Mark, listed: Mapping[str, StoreEntry], signer: str) -> bool:
    entry = listed.get(mark.index_name)
    return entry is not None and entry.sha256 == mark.bundle and signer in ("", entry.signed_by)
