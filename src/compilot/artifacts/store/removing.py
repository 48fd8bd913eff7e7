"""Removing one bundle from a store. In: a store, and a bundle's name or the beginning of its digest. Out: its entry.

The entry goes before the object, so that nobody is sent to something that is gone. An object that another file in the
index names stays. A name or a beginning that several bundles have is refused: nothing is removed by guessing.
"""

from __future__ import annotations

from compilot.artifacts.store import SHORTEST_ID, SHOWN_DIGITS, finding, listing
from compilot.artifacts.store.layout import INDEX, StoreEntry, named_objects
from compilot.artifacts.store.remote import Remote
from compilot.errors import InputError


def remove(url: str, wanted: str) -> StoreEntry:
    """Remove the one bundle that is called so; gives what was known of it."""
    remote = Remote(url)
    remote.must_be_writable()
    entry = _only(remote, wanted)
    remote.delete([entry.index_name, entry.old_index_name])
    others = {name for one in remote.sizes(INDEX) for name in named_objects(one)}
    if entry.object_name not in others:
        remote.delete([entry.object_name])
    if not finding.names_of(remote, [entry.model_id]):
        remote.delete(entry.names)
    return entry


def _only(remote: Remote, wanted: str) -> StoreEntry:
    found = [entry for entry in listing(remote).entries if _is_called(entry, wanted)]
    if not found:
        raise InputError(f"{remote.url} has no bundle '{wanted}'; 'compilot store ls {remote.url}' lists what it has.")
    if len(found) > 1:
        several = ", ".join(f"{entry.sha256[:SHOWN_DIGITS]} ({entry.label})" for entry in found)
        raise InputError(f"'{wanted}' may be any of {several}; write more of the digest. Nothing was removed.")
    return found[0]


def _is_called(entry: StoreEntry, wanted: str) -> bool:
    """By its name, or by the beginning of its own digest: ids of models and weights are those of many bundles."""
    return entry.label == wanted or (len(wanted) >= SHORTEST_ID and entry.sha256.startswith(wanted))
