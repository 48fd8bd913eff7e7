"""A bundle's files on disk, each checked on this very start.

In: an open bundle. Out: a folder with its files. A folder bundle that nobody else can change is checked and used in
place. Everything else is unpacked once per machine and user, into a private cache addressed by the manifest's digest:
copied, the copy hashed, a marker last, renamed into place. Later starts hash the unpacked files again, so damage on
disk is found there too, and mended from the bundle. Nothing is synced to disk: what a crash leaves is found by its
digest. Covered: many processes at once (one unpacks, the others wait, with a limit), kill -9 at any moment. Not
covered: pruning (cache.py).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from compilot.artifacts import atomic, cache
from compilot.artifacts.bundle import MANIFEST, Bundle, check_files, copy_checked
from compilot.artifacts.cache import READY, USED
from compilot.artifacts.container import Folder, read
from compilot.artifacts.locks import file_lock, hold_shared
from compilot.artifacts.private import cache_home, private_directory
from compilot.errors import BundleError, EnvironmentProblem

LOCK_WAIT_S = 60.0  # unpacking a gigabyte takes seconds; a hung process must not hold up a start for ever


def unpacked(bundle: Bundle) -> Path:
    """The folder with the bundle's files, every digest checked."""
    written_to = any(entry.needs_compiler for entry in bundle.manifest.entries)  # compile caches grow
    if isinstance(bundle.container, Folder) and not bundle.changeable and not written_to:
        check_files(bundle.container, bundle.manifest)
        return bundle.path
    try:
        home = private_directory(cache_home() / "bundles")
        return _from_cache(bundle, home / bundle.digest)
    except OSError as problem:
        where = problem.filename or "the cache"
        raise EnvironmentProblem(
            f"{bundle.path} cannot be unpacked: {where}: {problem.strerror}; set COMPILOT_CACHE to a folder with room."
        ) from problem


def _from_cache(bundle: Bundle, place: Path) -> Path:
    if _is_good(bundle, place):
        return place
    with file_lock(cache.lock_path(place), wait_s=LOCK_WAIT_S):
        if _is_good(bundle, place):
            return place
        atomic.remove(place)
        atomic.sweep(place.parent)
        with atomic.making_folder(place, durable=False) as partial:
            _unpack(bundle, partial)
    if not (place / READY).is_file():
        raise EnvironmentProblem(f"{place} was removed while it was unpacked; start again.")
    hold_shared(place / USED)
    cache.keep_within_limit(place.parent)
    return place


def _is_good(bundle: Bundle, place: Path) -> bool:
    """Whether the cache has this bundle, whole; a damaged one is as good as none."""
    if not (place / READY).is_file():
        return False
    hold_shared(place / USED)  # before the check: from here on nobody prunes it
    try:
        check_files(Folder(place), bundle.manifest)
    except BundleError:
        return False
    with contextlib.suppress(OSError):
        os.utime(place / USED)
    return True


def _unpack(bundle: Bundle, folder: Path) -> None:
    for file in bundle.manifest.files:
        path = folder / file.name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_checked(bundle.container, file, path)
    container = bundle.container  # with the manifest, 'compilot cache' can tell what this is and check it
    (folder / MANIFEST).write_bytes(read(container, MANIFEST, container.sizes[MANIFEST]))
    for marker in (USED, READY):
        (folder / marker).touch()
