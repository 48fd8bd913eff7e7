"""Digests of files, in pieces and by several threads: hashing is most of a large bundle's start.

In: where bytes lie (Span) and what a manifest says about them. Out: digests, and the parts that are checked each by
itself. A file of more than one piece has the digest of each piece in the manifest beside that of the whole; the pieces
together are all of it, so whoever has checked them has checked the file. Not covered: what a mismatch means
(bundle.py).
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from compilot._cores import usable_cores
from compilot.records import PIECE_BYTES, ArtifactFile

_MOST_THREADS = 8  # beyond that memory, not hashing, is the limit
_SMALL = 1 << 16  # to map so little costs more than to read it
_BLOCK = 1 << 20
_MOST_FILES = 256  # per job: small files cost by their number


class Span(NamedTuple):
    """Bytes of an open file."""

    fd: int
    start: int
    size: int


class FilePart(NamedTuple):
    """Bytes of a file in a manifest that have a digest of their own."""

    start: int  # from the file's beginning
    size: int
    sha256: str

    def within(self, file: Span) -> Span:
        """Where it lies."""
        return Span(file.fd, file.start + self.start, self.size)


def parts_of(file: ArtifactFile) -> list[FilePart]:
    """What of a file is to be checked: its pieces, or all of it. ValueError if the pieces are not the file."""
    if not file.pieces:
        return [FilePart(0, file.size_bytes, file.sha256)]
    starts = range(0, file.size_bytes, PIECE_BYTES)
    return [
        FilePart(start, min(PIECE_BYTES, file.size_bytes - start), digest)
        for start, digest in zip(starts, file.pieces, strict=True)
    ]


def piece_digests(path: Path) -> tuple[str, ...]:
    """What `ArtifactFile.pieces` of a file is: nothing where one piece is all."""
    size = path.stat().st_size
    if size <= PIECE_BYTES:
        return ()
    with path.open("rb") as file:
        spans = [Span(file.fileno(), at, min(PIECE_BYTES, size - at)) for at in range(0, size, PIECE_BYTES)]
        return tuple(digest_of(span) for span in spans)


def file_record(path: Path, name: str) -> ArtifactFile:
    """The record of one file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ArtifactFile(name=name, sha256=digest, size_bytes=path.stat().st_size, pieces=piece_digests(path))


def digest_of(span: Span) -> str:
    """Of bytes in a place that is this user's alone, in one piece: each block more would wait for other threads.

    It is read once before it is mapped: what a bad disk or a shortened file gives is then an error and not a signal.
    """
    if span.size <= _SMALL:
        return hashlib.sha256(_read(span)).hexdigest()
    with open(os.devnull, "wb") as nowhere:
        copy_span(span, nowhere.fileno())
    before = span.start % mmap.ALLOCATIONGRANULARITY
    window = mmap.mmap(span.fd, before + span.size, access=mmap.ACCESS_READ, offset=span.start - before)
    with window, memoryview(window)[before:] as seen:
        return hashlib.sha256(seen).hexdigest()


def digest_read(span: Span) -> str:
    """Of bytes that others may shorten meanwhile: read and not mapped, so that this is an error and not a signal."""
    digest, done = hashlib.sha256(), 0
    while done < span.size:
        block = _read(Span(span.fd, span.start + done, min(_BLOCK, span.size - done)))
        digest.update(block)
        done += len(block)
    return digest.hexdigest()


def _read(span: Span) -> bytes:
    data = os.pread(span.fd, span.size, span.start)
    if len(data) < span.size:
        raise EOFError("the file ends too early")
    return data


def copy_span(span: Span, target: int) -> None:
    """Bytes to where another file stands, without passing through this process."""
    done = 0
    while done < span.size:
        moved = os.sendfile(target, span.fd, span.start + done, span.size - done)
        if not moved:
            raise EOFError("the file ends too early")
        done += moved


def side_by_side(act: Callable[[ArtifactFile, FilePart], None], parts: Sequence[tuple[ArtifactFile, FilePart]]) -> None:
    """Do it to all parts, some at once; raises what the first of them in this order raises."""
    batches = list(_batches(parts))
    if len(batches) <= 1:
        return _each(act, parts)
    with ThreadPoolExecutor(min(len(batches), usable_cores(), _MOST_THREADS), "compilot-check") as pool:
        try:
            running = [pool.submit(_each, act, batch) for batch in batches]
        except RuntimeError:  # this process may start no more threads
            return _each(act, parts)
        try:
            for one in running:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _batches(parts: Sequence[tuple[ArtifactFile, FilePart]]) -> Iterator[list[tuple[ArtifactFile, FilePart]]]:
    """Parts of about a piece together: a compile cache has thousands of small files."""
    batch, size = [], 0
    for file, part in parts:
        batch.append((file, part))
        size += part.size
        if size >= PIECE_BYTES or len(batch) >= _MOST_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _each(act: Callable[[ArtifactFile, FilePart], None], parts: Sequence[tuple[ArtifactFile, FilePart]]) -> None:
    for file, part in parts:
        act(file, part)
