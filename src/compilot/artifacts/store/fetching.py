"""Getting one object of a store: whole, checked, and from where the last attempt broke off.

In: a store, an entry, a path. Out: the file at the path, once its SHA-256 was right, or a StoreError. What was fetched
so far lies beside the path as `.SHA.download` and is taken up again by the next attempt.
Covered: broken connections, damaged objects and damaged leftovers, two downloads at once, servers that cannot send
parts, full disks. Not covered: fetching parts side by side.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from compilot.artifacts.store.layout import StoreEntry
from compilot.artifacts.store.remote import Remote
from compilot.errors import BundleError, EnvironmentProblem, StoreError, StoreUnreachable
from compilot.files import atomic
from compilot.files.locks import file_lock

CHUNK = 8 * 2**20  # large enough for the line, small enough to lose
ATTEMPTS = 4  # of one chunk
FIRST_PAUSE_S = 0.2  # doubled after each attempt

Accept = Callable[[Path], None]


class Download(NamedTuple):
    """What was fetched."""

    fetched_bytes: int
    resumed_bytes: int  # that an earlier attempt had left


def download(remote: Remote, entry: StoreEntry, path: Path, accept: Accept) -> Download:
    """Fetch an object to a path; `accept` may still refuse (raise) what has the right digest."""
    try:
        with _place(path, entry) as partial:
            done = _fetch_checked(remote, entry, partial)
            _accepted(partial, accept)
            partial.chmod(atomic.PUBLIC)
            os.replace(partial, path)
            atomic.sync_folder(path.parent)
    except OSError as problem:
        why = f"cannot write {path}: {problem.strerror or problem}"
        raise EnvironmentProblem(f"{why}; choose another place.") from problem
    return done


def _accepted(partial: Path, accept: Accept) -> None:
    """What is refused does not stay: the same bytes would be refused again."""
    try:
        accept(partial)
    except (BundleError, StoreError):
        partial.unlink(missing_ok=True)
        raise


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_digest(path: Path, sha256: str) -> bool:
    """True if the file is there and has this digest."""
    try:
        return digest_of_file(path) == sha256
    except OSError:
        return False


@contextmanager
def _place(path: Path, entry: StoreEntry) -> Iterator[Path]:
    """Where to fetch to: the leftover of an earlier attempt, unless another process is at it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = path.with_name(f".{entry.sha256[:32]}.download")
    lock = path.with_name(shared.name + ".lock")
    with file_lock(lock, wait_s=0) as got:
        if got.held:
            try:
                yield shared
            finally:
                lock.unlink(missing_ok=True)
            return
    own = atomic.partial_name(path)
    try:
        yield own
    finally:
        own.unlink(missing_ok=True)


def _fetch_checked(remote: Remote, entry: StoreEntry, partial: Path) -> Download:
    """Fetch and check; a leftover that turns out to be wrong is thrown away and everything fetched again, once."""
    resumed = _fetch(remote, entry, partial)
    if has_digest(partial, entry.sha256):
        return Download(entry.size_bytes - resumed, resumed)
    partial.unlink()
    if resumed:
        return _fetch_checked(remote, entry, partial)
    raise StoreError(
        f"{entry.object_name} in {remote.url} is damaged: its digest is not the one in its name; "
        "remove it with 'compilot store gc --verify' and push the bundle again."
    )


def _fetch(remote: Remote, entry: StoreEntry, partial: Path) -> int:
    """Bring the file to its full length; gives how much of it was there before."""
    with _open_private(partial) as file:
        in_parts = remote.can_resume(entry.object_name)
        there = min(file.seek(0, os.SEEK_END), entry.size_bytes) if in_parts else 0
        file.truncate(there)
        file.seek(there)
        for chunk in _ranges(remote, entry, there) if in_parts else _stream(remote, entry):
            file.write(chunk)
            file.flush()
        os.fsync(file.fileno())
    return there


def _ranges(remote: Remote, entry: StoreEntry, start: int) -> Iterator[bytes]:
    while start < entry.size_bytes:
        chunk = _range(remote, entry, start, min(start + CHUNK, entry.size_bytes))
        yield chunk
        start += len(chunk)


def _range(remote: Remote, entry: StoreEntry, start: int, end: int) -> bytes:
    """One part, asked for again when the line breaks."""
    pause = FIRST_PAUSE_S
    for attempt in range(ATTEMPTS):
        try:
            chunk = remote.read_range(entry.object_name, start, end)
            if 0 < len(chunk) <= end - start:
                return chunk
            problem = StoreError(f"{remote.url} sent {len(chunk)} bytes where {end - start} were asked for")
        except StoreError as error:
            problem = error
        if attempt < ATTEMPTS - 1:
            time.sleep(pause)
            pause *= 2
    kind = StoreUnreachable if isinstance(problem, StoreUnreachable) else StoreError
    raise kind(
        f"the download broke off at {start} of {entry.size_bytes} bytes ({str(problem).rstrip('.')}); run the same "
        "command again to continue from there."
    )


def _stream(remote: Remote, entry: StoreEntry) -> Iterator[bytes]:
    left = entry.size_bytes
    with remote.stream(entry.object_name) as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk


@contextmanager
def _open_private(partial: Path) -> Iterator[IO[bytes]]:
    """A leftover is gone on with only if it is this user's own file: its name can be guessed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(partial, flags, atomic.PRIVATE), "r+b") as file:
        found = os.fstat(file.fileno())
        mine = found.st_uid == os.getuid() and not found.st_mode & 0o077 and found.st_nlink == 1
        if not (mine and stat.S_ISREG(found.st_mode)):
            raise EnvironmentProblem(f"{partial} is not this user's own file; remove it, or choose another place.")
        yield file
