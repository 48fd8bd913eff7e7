"""The cache of unpacked bundles: what is in it, is it whole, and what can go.

In: the folder of the cache. Out: its entries, least recently used last. An entry is a folder named by the digest of its
bundle's manifest, with the file `ready` written last and `used` touched at every start and locked while it is in use.
Covered: entries that are being made or used, or were opened a moment ago (never removed), half-removed and half-made
ones, damage. Not covered: making entries (unpack.py).
"""

from __future__ import annotations

import enum
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from compilot._bytes import parse_size
from compilot.artifacts.bundle import MANIFEST, check_unpacked
from compilot.errors import BundleError, InputError
from compilot.files import atomic
from compilot.files.locks import file_lock, is_locked
from compilot.files.private import cache_home
from compilot.records import Manifest, Record

READY = "ready"  # written last: without it the folder is not one
USED = "used"  # touched at every start, for pruning by age
LIMIT_VARIABLE = "COMPILOT_CACHE_LIMIT"
DEFAULT_LIMIT = "10GiB"  # some hundred bundles of usual size
RECENT_S = 600.0  # for processes that found an entry and have not locked it yet, and places without locks
_DIGEST = "[0-9a-f]{64}"

logger = logging.getLogger("compilot")


class CacheState(enum.StrEnum):
    """What an entry is good for."""

    READY = "ready"
    UNFINISHED = "unfinished"  # its maker was killed
    DAMAGED = "damaged"
    UNKNOWN = "unknown"  # it has no manifest to check it against


class Stays(enum.StrEnum):
    """Why an entry was not removed."""

    IN_USE = "in use"
    RECENT = "opened in the last ten minutes"  # RECENT_S
    STUCK = "cannot be removed"  # another user's, or on a disk that is read-only


class CacheEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One unpacked bundle."""

    digest: str  # SHA-256 of its manifest
    path: Path
    size_bytes: int
    used_s: float  # seconds since 1970
    state: CacheState
    label: str = ""
    engine: str = ""
    in_use: bool = False
    why: str = ""  # of a damaged one


class Pruned(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What pruning did."""

    removed: tuple[CacheEntry, ...]
    stay: tuple[Stays, ...]  # of each one that was to go and did not


def bundles_folder() -> Path:
    """Where unpacked bundles lie; it need not be there."""
    return cache_home() / "bundles"


def list_entries(folder: Path) -> list[CacheEntry]:
    """Every entry, the most recently used one first."""
    entries = [_entry(path) for path in _folders(folder)]
    return sorted(entries, key=lambda entry: entry.used_s, reverse=True)


def verify(folder: Path) -> list[CacheEntry]:
    """The same, with every file's digest checked."""
    return [_verified(entry) for entry in list_entries(folder)]


def prune(folder: Path, max_bytes: int, *, damaged: bool = False) -> Pruned:
    """Remove unfinished entries, then the least recently used ones beyond the limit.

    damaged: check all digests and remove what is damaged, or has no manifest to check it against, too.
    """
    atomic.sweep(folder)
    removed: list[CacheEntry] = []
    stay: list[Stays] = []
    total = 0
    for entry in verify(folder) if damaged else list_entries(folder):
        total += entry.size_bytes
        if entry.state is CacheState.READY and total <= max_bytes:
            continue
        if stays := remove(entry):
            stay.append(stays)
        else:
            total -= entry.size_bytes
            removed.append(entry)
    return Pruned(removed=tuple(removed), stay=tuple(stay))


def keep_within_limit(folder: Path) -> None:
    """Prune to the user's limit, for whoever has just added an entry; nothing that goes wrong here stops anybody."""
    try:
        removed = prune(folder, limit_bytes(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT))).removed
    except (OSError, InputError) as problem:
        logger.warning("the cache %s was not pruned: %s", folder, problem)
        return
    for entry in removed:
        logger.info("removed %s (%s), unused for the longest time, from the cache", entry.path, entry.label)


def limit_bytes(text: str) -> int:
    """Bytes from "10GiB"; "0" for nothing at all."""
    return 0 if text.strip() == "0" else parse_size(text)


def remove(entry: CacheEntry) -> Stays | None:
    """Remove one entry unless somebody holds its lock or has just begun to use it; None: it is gone."""
    lock = lock_path(entry.path)
    with file_lock(lock, wait_s=0) as got:
        if not got.held:
            return Stays.IN_USE if is_locked(lock) else Stays.STUCK
        if is_locked(entry.path / USED):
            return Stays.IN_USE
        if time.time() - _used_s(entry.path) < RECENT_S:
            return Stays.RECENT
        doomed = atomic.partial_name(entry.path)
        try:
            entry.path.rename(doomed)  # at once: nobody finds half of it
        except OSError:
            return Stays.STUCK
        atomic.remove(doomed)
        lock.unlink(missing_ok=True)
    return None


def lock_path(entry: Path) -> Path:
    """The lock that whoever makes or removes an entry holds."""
    return entry.with_name(entry.name + ".lock")


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if re.fullmatch(_DIGEST, path.name) and path.is_dir())


def _entry(path: Path) -> CacheEntry:
    manifest = _manifest(path)
    return CacheEntry(
        digest=path.name,
        path=path,
        size_bytes=sum(size for _, size in _files(path)),
        used_s=_used_s(path),
        state=CacheState.READY if (path / READY).is_file() else CacheState.UNFINISHED,
        label=manifest.label if manifest else "",
        engine=manifest.engine if manifest else "",
        in_use=is_locked(lock_path(path)) or is_locked(path / USED),
    )


def _verified(entry: CacheEntry) -> CacheEntry:
    if entry.state is CacheState.UNFINISHED:
        return entry
    manifest = _manifest(entry.path)
    if manifest is None:
        why = f"{MANIFEST} is missing or not the one that the entry is named by"
        return msgspec.structs.replace(entry, state=CacheState.UNKNOWN, why=why)
    try:
        check_unpacked(entry.path, manifest)
    except BundleError as problem:
        return msgspec.structs.replace(entry, state=CacheState.DAMAGED, why=str(problem))
    return entry


def _manifest(path: Path) -> Manifest | None:
    """The entry's manifest, if it is the one that its name promises."""
    try:
        raw = (path / MANIFEST).read_bytes()
        if hashlib.sha256(raw).hexdigest() != path.name:
            return None
        return msgspec.json.decode(raw, type=Manifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _used_s(path: Path) -> float:
    """When it was last used; a folder without the marker counts by its own age."""
    for marker in (path / USED, path):
        try:
            return marker.stat().st_mtime
        except OSError:
            continue
    return 0.0


def _files(path: Path) -> Iterator[tuple[str, int]]:
    for root, _, names in os.walk(path):
        for name in names:
            try:
                yield name, os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue  # removed meanwhile
