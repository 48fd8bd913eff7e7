"""One build for all worker processes of a server: the first builds, the others load its files by digest.

In: a model, an example, what is wanted. Out: a bundle in this user's cache and its digest. The key is everything that
the files depend on: the model with its weights, the machine, the form of the example, the threads. Whoever has the lock
builds; a holder that dies lets go of it. Covered: a failure that will not go away is not tried again by each worker.
Not covered: machines that share a home (locks of a network file system may not hold: then each builds, nothing breaks).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot._version import __version__
from compilot.files import atomic
from compilot.files.locks import file_lock
from compilot.files.private import cache_home, private_directory
from compilot.records import Record, encode
from compilot.serve.records import BuildResult, decode_result
from compilot.serve.staying import Closing, Later
from compilot.serve.watching import Ran, Spent

MOST_KEPT = 32  # bundles, of all models that this user's servers build for
FAILURE_LASTS_S = 600.0  # a failure of another worker is believed for so long
_jobs = itertools.count()


class SharedBundle(NamedTuple):
    """A bundle that was built or found."""

    path: Path
    result: BuildResult
    spent: Spent | None  # None: somebody else built it


class Refused(Exception):
    """There will be no bundle; the reason."""


def shared_folder(key: Record | tuple[object, ...]) -> Path:
    """Where the bundle for this key lies."""
    digest = hashlib.sha256(msgspec.json.encode([__version__, key])).hexdigest()[:32]
    try:
        return private_directory(cache_home() / "serve" / digest)
    except OSError as problem:
        raise Later(f"cannot write to {cache_home()}: {problem.strerror or problem}") from problem


def built_once(
    folder: Path,
    build: Callable[[Path, Path, Path], Ran],
    *,
    wait_s: float,
    stop: threading.Event,
    lasts_s: float | None = None,
) -> SharedBundle:
    """The folder's bundle; `build(job folder, bundle, result)` makes it where nobody has.

    lasts_s: how old a bundle may be; None: as old as it is. Raises Refused, Later, Closing.
    """
    try:
        with file_lock(folder / "lock", wait_s, stop) as lock:
            known = _known(folder, lasts_s)
            found = known or _build(folder, build, alone=lock.held)
            os.utime(folder)  # used now
    except CancelledError:
        raise Closing from None
    except OSError as problem:
        raise Later(f"cannot write to {folder}: {problem.strerror or problem}") from problem
    if known is None:
        _prune(folder, stop)
    return found


def _prune(newest: Path, stop: threading.Event) -> None:
    """Remove the folders that nobody has used for longest; who has loaded a bundle does not need it any more."""
    with contextlib.suppress(OSError, CancelledError):
        others = [one for one in newest.parent.iterdir() if one.is_dir() and one != newest]
        for folder in sorted(others, key=lambda one: -one.stat().st_mtime)[MOST_KEPT - 1 :]:
            with file_lock(folder / "lock", 0.0, stop) as lock:
                if lock.held:
                    _remove(folder)


def _known(folder: Path, lasts_s: float | None) -> SharedBundle | None:
    """What another process, or an earlier start, left here."""
    try:
        written = folder / "result.json"
        age_s = time.time() - written.stat().st_mtime
        result = decode_result(written.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    bundle = folder / "model.cpbundle"
    if result.ok:
        fresh = lasts_s is None or age_s <= lasts_s
        return SharedBundle(bundle, result, None) if fresh and bundle.exists() else None
    if age_s > FAILURE_LASTS_S:
        return None
    raise Refused(result.reason)


def discard(found: SharedBundle) -> None:
    """Remove a bundle that is damaged, its result first, so that it is built again."""
    for path in (found.path.with_name("result.json"), found.path):
        _remove(path)


def _build(folder: Path, build: Callable[[Path, Path, Path], Ran], *, alone: bool) -> SharedBundle:
    with _job_folder(folder, alone) as work:
        ran = build(work, folder / "model.cpbundle", work.with_name(work.name + ".result"))
    if not ran.result.ok and ran.result.retry:
        raise Later(ran.result.reason)
    atomic.write_bytes(folder / "result.json", encode(ran.result))
    if not ran.result.ok:
        raise Refused(ran.result.reason)
    return SharedBundle(folder / "model.cpbundle", ran.result, ran.spent)


@contextlib.contextmanager
def _job_folder(folder: Path, alone: bool) -> Iterator[Path]:
    """A folder for one job; it holds the model, and is gone afterwards, as is what a killed process left."""
    for left in folder.glob("job-*") if alone else ():
        _remove(left)
    work = folder / f"job-{os.getpid()}-{next(_jobs)}"
    work.mkdir(mode=0o700)
    try:
        yield work
    finally:
        for left in folder.glob(f"{work.name}*"):
            _remove(left)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
