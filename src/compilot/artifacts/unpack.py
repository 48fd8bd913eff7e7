"""A bundle's files on disk, each checked on this very start.

In: an open bundle. Out: a folder with its files. A folder bundle that nobody else can change is checked and used in
place. Everything else is unpacked once per machine and user, into a private cache addressed by the manifest's digest:
copied, the copy hashed, a marker last, renamed into place. Later starts hash the unpacked files again, so damage on
disk is found there too, and restored from the bundle. Nothing is synced to disk: what a crash leaves is found by its
digest. Where the cache is full or not this user's alone, the temporary one is tried.
Covered: many processes at once (one unpacks, the others wait, with a limit), kill -9 at any moment. Not covered:
pruning (cache.py); files that an engine adds to an unpacked compile cache: nobody else can write there, but no digest
knows them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import NoReturn

from compilot.artifacts import cache
from compilot.artifacts.bundle import MANIFEST, OF_THIS_PROCESS, Bundle, check_files, check_unpacked, unpack_files
from compilot.artifacts.cache import READY, USED
from compilot.artifacts.container import Folder, read
from compilot.errors import BundleError, EnvironmentProblem
from compilot.files import atomic
from compilot.files.locks import file_lock, hold_shared
from compilot.files.private import UnsafeDirectory, cache_home, private_directory, temporary_cache
from compilot.records import Manifest

LOCK_WAIT_S = 60.0  # unpacking a gigabyte takes seconds; a hung process must not hold up a start for ever

logger = logging.getLogger("compilot")


def unpacked(bundle: Bundle, stop: threading.Event | None = None) -> Path:
    """The folder with the bundle's files, every digest checked; `stop` ends the wait for another process."""
    written_to = any(entry.needs_compiler for entry in bundle.manifest.entries)  # compile caches grow
    if isinstance(bundle.container, Folder) and not bundle.changeable and not written_to:
        return _in_place(bundle)
    usual = cache_home()
    try:
        return _from_cache(bundle, usual, stop)
    except (OSError, UnsafeDirectory) as problem:
        other = usual if _is_of_this_process(problem) else temporary_cache()
        if other == usual:
            _refuse(bundle, problem)
        logger.warning("using %s as cache for %s, because %s", other, bundle.path, _told(problem))
    try:
        return _from_cache(bundle, other, stop)
    except (OSError, UnsafeDirectory) as problem:
        _refuse(bundle, problem)


def _in_place(bundle: Bundle) -> Path:
    try:
        check_files(bundle.container, bundle.manifest)
    except OSError as problem:
        _refuse(bundle, problem)
    return bundle.path


def check_again(folder: Path, manifest: Manifest) -> None:
    """Check what `unpacked` gave once more, perhaps in another process; from here on nobody prunes it."""
    hold_shared(folder / USED)
    check_unpacked(folder, manifest)


def _from_cache(bundle: Bundle, home: Path, stop: threading.Event | None) -> Path:
    place = private_directory(home / "bundles") / bundle.digest
    if _is_good(bundle, place):
        return place
    with file_lock(cache.lock_path(place), wait_s=LOCK_WAIT_S, stop=stop):
        if _is_good(bundle, place):
            return place
        atomic.sweep(place.parent)
        _replace(bundle, place)
    if not (place / READY).is_file():
        raise EnvironmentProblem(f"{place} was removed while it was unpacked; start again.")
    hold_shared(place / USED)
    cache.keep_within_limit(place.parent)
    return place


def _replace(bundle: Bundle, place: Path) -> None:
    """Unpack the bundle; a damaged entry goes only then, so that whoever uses it misses it for a moment only."""
    doomed = atomic.partial_name(place)
    try:
        with atomic.making_folder(place, durable=False) as partial:
            _unpack(bundle, partial)
            with contextlib.suppress(FileNotFoundError):
                place.rename(doomed)
    finally:
        atomic.remove(doomed)


def _is_good(bundle: Bundle, place: Path) -> bool:
    """Whether the cache has this bundle, whole; a damaged one is as good as none."""
    if not (place / READY).is_file():
        return False
    try:
        check_again(place, bundle.manifest)
    except BundleError:
        return False
    with contextlib.suppress(OSError):
        os.utime(place / USED)
    return True


def _unpack(bundle: Bundle, folder: Path) -> None:
    unpack_files(bundle.container, bundle.manifest, folder)
    container = bundle.container  # with the manifest, 'compilot cache' can tell what this is and check it
    (folder / MANIFEST).write_bytes(read(container, MANIFEST, container.sizes[MANIFEST]))
    for marker in (USED, READY):
        (folder / marker).touch()


def _is_of_this_process(problem: Exception) -> bool:
    return isinstance(problem, OSError) and problem.errno in OF_THIS_PROCESS


def _told(problem: OSError | UnsafeDirectory) -> str:
    if isinstance(problem, UnsafeDirectory):
        return f"{problem.path} cannot be used: {problem.why}"
    return f"{problem.filename or 'the cache'}: {problem.strerror or problem}"


def _refuse(bundle: Bundle, problem: OSError | UnsafeDirectory) -> NoReturn:
    own = "give this process more memory and open files (ulimit -n)"
    advice = own if _is_of_this_process(problem) else "set COMPILOT_CACHE to a folder with room"
    raise EnvironmentProblem(f"{bundle.path} cannot be started: {_told(problem)}; {advice}.") from problem
