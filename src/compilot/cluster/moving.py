"""Files between the driver and a node, by digest. In: a folder and what is in it. Out: the same folder over there.

What the other side has already is not sent. Small files go through Ray in pieces; larger ones through a place that all
machines reach (`exchange`, a URL that fsspec opens) where there is one, so that Ray carries their digests only.
A folder that was received takes its place whole, after every digest was compared. Not covered: links, devices, empty
folders; who may read the exchange (its own business, as for every store).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compilot.artifacts.store.remote import Remote
from compilot.cluster.facts import FileFact, Link
from compilot.errors import WorkerError
from compilot.files import atomic

PIECE_BYTES = 4 << 20  # of what one message carries
SMALL_BYTES = 1 << 20  # goes through Ray even where there is an exchange: a request to a store costs more


def listed(folder: Path) -> tuple[FileFact, ...]:
    """Every plain file in a folder; none where there is no such folder."""
    return tuple(fact(folder, path) for path in sorted(_plain_files(folder)))


def fact(folder: Path, path: Path) -> FileFact:
    """One of them."""
    found = path.stat()
    name = path.relative_to(folder).as_posix()
    executable = bool(found.st_mode & stat.S_IXUSR)
    return FileFact(name=name, sha256=digest(path), size_bytes=found.st_size, executable=executable)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lacking(folder: Path, files: Iterable[FileFact]) -> list[FileFact]:
    """Those that the folder does not have as they are."""
    return [one for one in files if not _has(folder, one)]


def bring(link: Link, place: str, folder: Path, files: Sequence[FileFact], exchange: str | None = None) -> int:
    """Have these files of a folder of ours at a place of the node's; gives how many bytes went there."""
    missing: list[FileFact] = link.now("lacking", place, tuple(files)).result()
    large = [one for one in missing if exchange and one.size_bytes > SMALL_BYTES]
    for one in missing:
        if exchange and one in large:
            _offer(exchange, folder / one.name, one)
        else:
            for offset, data in _pieces(folder / one.name, one):
                link.now("write", place, one.name, offset, data).result()
    if missing:
        link.now("settle", place, tuple(files), exchange, tuple(large)).result()
    return sum(one.size_bytes for one in missing)


def take(link: Link, place: str, folder: Path, files: Sequence[FileFact], exchange: str | None = None) -> int:
    """Have these files of the node's in a folder here, which is replaced whole; gives how many bytes came."""
    missing = lacking(folder, files)
    if not missing and len(listed(folder)) == len(files):
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    large = [one for one in files if exchange and one.size_bytes > SMALL_BYTES]
    if large:
        link.now("offer", place, tuple(large), exchange).result()
    partial = atomic.partial_name(folder)
    try:
        for one in files:
            target = place_for(partial, one.name)
            if exchange and one in large:
                _pull(exchange, target, one)
            else:
                _receive(link, place, target, one)
            finish(target, one)
        atomic.remove(folder)
        partial.rename(folder)
    finally:
        atomic.remove(partial)
    return sum(one.size_bytes for one in files)


def settle(folder: Path, files: Sequence[FileFact], exchange: str | None, large: Sequence[FileFact]) -> None:
    """On the node: fetch the large ones, and compare every digest."""
    for one in large:
        assert exchange is not None  # or there would be none
        _pull(exchange, place_for(folder, one.name), one)
    for one in files:
        finish(folder / one.name, one)


def offer(folder: Path, files: Sequence[FileFact], exchange: str) -> None:
    """On the node: put files where the driver fetches them."""
    for one in files:
        _offer(exchange, folder / one.name, one)


def write(folder: Path, name: str, offset: int, data: bytes) -> None:
    """On the node: one piece of a file."""
    path = place_for(folder, name)
    with path.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(data)


def read(folder: Path, name: str, offset: int) -> bytes:
    """On the node: one piece of a file."""
    with inside(folder, name).open("rb") as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)


def inside(folder: Path, name: str) -> Path:
    """A path in the folder; a name that leads out of it is refused."""
    path = folder / name
    if not name or os.path.isabs(name) or ".." in Path(name).parts:
        raise WorkerError(f"'{name}' is no file of {folder}.")
    return path


def place_for(folder: Path, name: str) -> Path:
    """The same with its folders there."""
    path = inside(folder, name)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def finish(path: Path, one: FileFact) -> None:
    """Compare the digest of a file that was received; WorkerError where it is another one."""
    if not path.exists() and not one.size_bytes:
        path.touch()
    if digest(path) != one.sha256:
        raise WorkerError(f"{one.name} arrived damaged (another digest); run it again.")
    path.chmod(0o755 if one.executable else 0o644)


def _receive(link: Link, place: str, target: Path, one: FileFact) -> None:
    with target.open("wb") as file:
        while file.tell() < one.size_bytes:
            data: bytes = link.now("read", place, one.name, file.tell()).result()
            if not data:
                raise WorkerError(f"{one.name} ended early on {link.node.name}; run it again.")
            file.write(data)


def _pieces(path: Path, one: FileFact) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for offset in range(0, max(one.size_bytes, 1), PIECE_BYTES):
            yield offset, file.read(PIECE_BYTES)


def _offer(exchange: str, path: Path, one: FileFact) -> None:
    remote, name = Remote(exchange), _blob(one)
    if remote.size(name) != one.size_bytes:
        remote.put(name, path)


def _pull(exchange: str, target: Path, one: FileFact) -> None:
    with Remote(exchange).stream(_blob(one)) as source, target.open("wb") as file:
        while data := source.read(PIECE_BYTES):
            file.write(data)


def _blob(one: FileFact) -> str:
    return f"blobs/{one.sha256[:2]}/{one.sha256}"


def _has(folder: Path, one: FileFact) -> bool:
    path = inside(folder, one.name)
    try:
        return path.stat().st_size == one.size_bytes and path.is_file() and digest(path) == one.sha256
    except OSError:
        return False


def _plain_files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
