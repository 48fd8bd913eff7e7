"""One process at a time, but never for ever.

In: the path of a lock file. Out: a Lock that says whether it is held; when the wait is over, or the place has no locks,
the caller goes on without it, and the work must be right (only wasted) in that case too. Another thread can end the
wait by an event: then nothing goes on.
Covered: a dead holder (the kernel drops its lock at once), a hung holder (the wait is bounded), many threads of one
process, a lock file that was removed by whoever held it, read-only folders, file systems without locks.
Not covered: fairness.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FIRST_NAP_S = 0.002  # most holders are done in milliseconds
LONGEST_NAP_S = 0.1
SHARED_ATTEMPTS = 10


class Lock(NamedTuple):
    """What came of waiting for a lock."""

    held: bool
    why: str = ""  # why it is not held
    waited_s: float = 0.0


@contextmanager
def file_lock(path: Path, wait_s: float = 30.0, stop: threading.Event | None = None) -> Iterator[Lock]:
    """Hold the lock for the body, or run the body without it after `wait_s` seconds; look at `held`.

    Once `stop` is set, nobody waits for the outcome any more: CancelledError, and the body is not run.
    """
    began = time.monotonic()
    fd, why = _acquire(path, began + wait_s, stop or threading.Event())
    try:
        yield Lock(held=fd is not None, why=why, waited_s=time.monotonic() - began)
    finally:
        if fd is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
            os.close(fd)


def is_locked(path: Path) -> bool:
    """True while some process holds this lock; nothing is made or waited for."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _try(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _acquire(path: Path, deadline: float, stop: threading.Event) -> tuple[int | None, str]:
    nap = FIRST_NAP_S
    while not stop.is_set():
        try:
            fd = _attempt(path)
        except OSError as problem:
            return None, f"{path} cannot be locked: {problem.strerror or problem}"
        if fd is not None:
            return fd, ""
        if time.monotonic() >= deadline:
            return None, f"{path} is still locked by another process"
        stop.wait(max(0.0, min(nap, deadline - time.monotonic())))
        nap = min(2 * nap, LONGEST_NAP_S)
    raise CancelledError(f"nobody waits for {path} any more")


def _attempt(path: Path) -> int | None:
    """The locked file, or None while somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if _try(fd) and _is_still(path, fd):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, fd: int) -> bool:
    """A holder may remove the file with its lock; then this is a lock on nothing."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False


_shared: dict[Path, int] = {}  # kept open until this process ends


def hold_shared(path: Path) -> bool:
    """Keep a shared lock on a file until this process ends, so that whoever would remove it can tell; True: held."""
    try:
        if path in _shared and _is_still(path, _shared[path]):
            return True
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    if not _share(fd):
        os.close(fd)
        return False
    old = _shared.pop(path, None)
    if old is not None:
        os.close(old)
    _shared[path] = fd
    return True


def _share(fd: int) -> bool:
    """A shared lock; is_locked() of another process may be in the way for a moment."""
    for _ in range(SHARED_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(FIRST_NAP_S)
        except OSError:
            return False
        else:
            return True
    return False
