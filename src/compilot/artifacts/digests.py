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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from compilot._cores import usable_cores
from compilot.records import PIECE_BYTES, ArtifactFile

_MOST_THREADS = 8  # beyond that memory, not hashing, is the limit


class Span(NamedTuple):
    """Bytes of an open file."""

    fd: int
    start: int
    size: int


class Part(NamedTuple):
    """Bytes of a file in a manifest that have a digest of their own."""

    start: int  # from the file's beginning
    size: int
    sha256: str

    def within(self, file: Span) -> Span:
        """Where it lies."""
        return Span(file.fd, file.start + self.start, self.size)


def parts_of(file: ArtifactFile) -> list[Part]:
    """What of a file is to be checked: its pieces, or all of it. ValueError if the pieces are not the file."""
    if not file.pieces:
        return [Part(0, file.size_bytes, file.sha256)]
    starts = range(0, file.size_bytes, PIECE_BYTES)
    return [
        Part(start, min(PIECE_BYTES, file.size_bytes - start), digest)
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


def digest_of(span: Span) -> str:
    """In one piece: hashing lets other threads run, and every block more would wait for them.

    It is read once before it is mapped: what a bad disk or a shortened file gives is then an error and not a signal.
    """
    if not span.size:
        return hashlib.sha256().hexdigest()
    with open(os.devnull, "wb") as nowhere:
        copy_span(span, nowhere.fileno())
    before = span.start % mmap.ALLOCATIONGRANULARITY
    window = mmap.mmap(span.fd, before + span.size, access=mmap.ACCESS_READ, offset=span.start - before)
    with window, memoryview(window)[before:] as seen:
        return hashlib.sha256(seen).hexdigest()


def copy_span(span: Span, target: int) -> None:
    """Bytes to where another file stands, without passing through this process."""
    done = 0
    while done < span.size:
        moved = os.sendfile(target, span.fd, span.start + done, span.size - done)
        if not moved:
            raise EOFError("the file ends too early")
        done += moved


def side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """All jobs, some at once; raises what the first of them in this order raises."""
    if len(jobs) <= 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(min(len(jobs), usable_cores(), _MOST_THREADS), thread_name_prefix="compilot-check") as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for one in running:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)
