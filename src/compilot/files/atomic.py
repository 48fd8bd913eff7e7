"""Files and folders that are there whole or not at all.

In: bytes, a source file, or the body of a `with`. Out: at the path, the old content or the new one, on disk when the
call returns; never half of it, whenever the process is killed.
While it is written it has the name `.NAME.HOST-PID.RANDOM.partial` beside its place; `sweep` removes what killed
writers left. HOST stands for this machine's process numbers, so that another container's writer is not called dead.
Covered: kill -9, power loss (fsync of content and folder), full disks (the leftover is removed).
Not covered: two writers of one file (the last one wins; for a folder, the first).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PUBLIC = 0o644
PRIVATE = 0o600
LEFTOVER_AGE_S = 6 * 3600  # no pack, extraction or download takes longer; for writers whose life cannot be asked
_LEFTOVER = r"\..+\.([0-9a-f]{8})-(\d+)\.[0-9a-f]{8}\.partial"
_CHUNK = 2**20


def write_bytes(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Replace the file with these bytes; a reader sees the old file or the new one, whole."""
    with writing(path, mode) as file:
        file.write(data)


def copy_file(source: Path, path: Path, mode: int = PUBLIC) -> str:
    """Replace the file with a copy of another one; gives the SHA-256 of what was written."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, writing(path, mode) as file:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


@contextmanager
def writing(path: Path, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place when the body ends well and vanishes when it does not."""
    partial = partial_name(path)
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)  # here, so that nobody reads half of it and the umask has no say
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def making_folder(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A private folder to fill, which takes its place when the body ends well; one already there stays as it is.

    durable=False: whole for every process, but perhaps not after a power cut; for what is checked at each use anyway.
    """
    partial = partial_name(path)
    partial.mkdir(mode=0o700)
    try:
        yield partial
        if durable:
            _sync_tree(partial)
        _publish(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already when it took its place
    if durable:
        sync_folder(path.parent)


def sweep(folder: Path, older_than_s: float = LEFTOVER_AGE_S) -> list[Path]:
    """Remove what dead writers left in a folder; gives what was removed."""
    found = [entry for entry in folder.iterdir() if _is_abandoned(entry, older_than_s)] if folder.is_dir() else []
    for entry in found:
        remove(entry)
    return found


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it; one that is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def partial_name(path: Path) -> Path:
    """The name of a file or folder that is still being written by this process."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}.{os.urandom(4).hex()}.partial")


def sync_folder(folder: Path) -> None:
    """Make a folder's entries last: a rename is on disk only then."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _publish(partial: Path, path: Path) -> None:
    try:
        partial.rename(path)
    except OSError:
        if not path.is_dir():
            raise


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(root))


def _is_abandoned(entry: Path, older_than_s: float) -> bool:
    name = re.fullmatch(_LEFTOVER, entry.name)
    if name is None:
        return False
    if name[1] == _host():
        return not _is_alive(int(name[2])) or _age_s(entry) > older_than_s
    return _age_s(entry) > older_than_s


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's, or no number a process can have: its age decides
    return True


def _age_s(entry: Path) -> float:
    try:
        return time.time() - entry.lstat().st_mtime
    except OSError:
        return 0.0


@functools.cache
def _host() -> str:
    """Equal for processes that see each other's process numbers: same boot, same process namespace."""
    parts = [os.uname().nodename]
    for source in (_boot, _namespace):
        try:
            parts.append(source())
        except OSError:
            continue
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")
