"""The cache of unpacked bundles on this machine: what `compilot cache ls`, `verify` and `prune` do.

    compilot.cache.prune("2GiB")

In: nothing, the folder is the user's own cache ($COMPILOT_CACHE). Out: records of its entries. Light to import.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.artifacts.cache import CacheEntry, Pruned

__all__ = ["CacheEntry", "Pruned", "ls", "prune", "verify"]

_RECORDS = {  # what the functions return
    "CacheEntry": "compilot.artifacts.cache",
    "Pruned": "compilot.artifacts.cache",
}


def ls() -> tuple[CacheEntry, ...]:
    """The unpacked bundles, the most recently used one first."""
    from compilot.artifacts import cache

    return tuple(cache.list_entries(cache.bundles_folder()))


def verify() -> tuple[CacheEntry, ...]:
    """The same, with every file compared with its digest: `state` says which are "ready", and `why` others are not."""
    from compilot.artifacts import cache

    return tuple(cache.verify(cache.bundles_folder()))


def prune(max_size: str | int | None = None, *, damaged: bool = False) -> Pruned:
    """Remove the least recently used bundles beyond a size; those in use stay. Returns what went and what stayed.

    max_size is in bytes, or text such as "2GiB"; 0 empties the cache. The default is $COMPILOT_CACHE_LIMIT, or 10GiB.
    damaged checks all digests and removes what is bad, too.
    """
    from compilot.artifacts import cache

    text = os.environ.get(cache.LIMIT_VARIABLE, cache.DEFAULT_LIMIT) if max_size is None else max_size
    limit = cache.limit_bytes(text) if isinstance(text, str) else text
    return cache.prune(cache.bundles_folder(), limit, damaged=damaged)


def __getattr__(name: str) -> Any:
    if name not in _RECORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_RECORDS[name]), name)
