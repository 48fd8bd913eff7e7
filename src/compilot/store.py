"""Stores from Python: what `compilot store ls`, `rm` and `gc` do. In: a URL. Out: records of its bundles.

    for bundle in compilot.store.ls("s3://models/bundles").entries:
        print(bundle.label, bundle.sha256, bundle.signed_by)

A store is a folder, or a file, s3, gs, http or sftp URL. Bundles go there with `compilot.push` and come from there with
`compilot.pull`. Light to import: what speaks to stores loads on first use.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.artifacts.store import Listing
    from compilot.artifacts.store.gc import Garbage
    from compilot.artifacts.store.layout import StoreEntry

__all__ = ["Garbage", "Listing", "StoreEntry", "gc", "ls", "rm"]

_RECORDS = {  # what the functions return
    "Garbage": "compilot.artifacts.store.gc",
    "Listing": "compilot.artifacts.store",
    "StoreEntry": "compilot.artifacts.store.layout",
}


def ls(url: str | os.PathLike[str]) -> Listing:
    """The bundles in a store, the newest first, and the index files that cannot be read."""
    from compilot.artifacts.store import listing
    from compilot.artifacts.store.remote import Remote

    remote = Remote(os.fspath(url))
    remote.must_exist()
    return listing(remote)


def rm(url: str | os.PathLike[str], bundle: str) -> StoreEntry:
    """Remove one bundle, by its name or the beginning of its digest; returns its entry.

    InputError for a name that several have: nothing is removed by guessing.
    """
    from compilot.artifacts.store.removing import remove

    return remove(os.fspath(url), bundle)


def gc(
    url: str | os.PathLike[str], *, keep: int | None = None, verify: bool = False, dry_run: bool = False
) -> tuple[Garbage, ...]:
    """Remove what is of no use: damaged, unfinished or forgotten objects; returns what went and why.

    keep also removes all but so many bundles of each model, weights and machine. verify reads every object and checks
    its digest. dry_run only says what would go.
    """
    from compilot.artifacts.store.gc import collect, find_garbage
    from compilot.artifacts.store.remote import Remote
    from compilot.errors import InputError

    if keep is not None and keep < 1:
        raise InputError("keep is how many bundles stay: at least 1.")
    remote = Remote(os.fspath(url))
    garbage = find_garbage(remote, keep=keep, verify=verify)
    if not dry_run:
        collect(remote, garbage)
    return tuple(garbage)


def __getattr__(name: str) -> Any:
    if name not in _RECORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_RECORDS[name]), name)
