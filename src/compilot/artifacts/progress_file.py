"""What a run is doing at this moment, for those who look from another process. In: a `Doing`. Out: progress.json.

A help and no record: it is written without waiting for the disk, nothing that goes wrong with it matters, and a run
that ends removes it. Of a run that was killed it stays: only while somebody holds the journal does it say the truth.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from compilot.files.atomic import PUBLIC, partial_name
from compilot.records import Record, encode

FILE_NAME = "progress.json"


class Doing(Record, frozen=True, kw_only=True):
    """What a run does."""

    what: str  # "trying 3: inductor freezing", "confirm: eager, inductor freezing"
    step: str = ""  # within it: "compiling", "pair 40 of at most 80"
    why: str = ""  # why this candidate is tried
    elapsed_s: float = 0.0  # since this part of the run began
    budget_s: float | None = None
    best: str = ""  # so far, by screening: "inductor (~1.31x)"


def write(folder: Path, doing: Doing) -> None:
    """Say it; a reader sees the old file or the new one, whole. A full disk is no problem."""
    path = folder / FILE_NAME
    partial = partial_name(path)
    with contextlib.suppress(OSError):
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PUBLIC)
            with os.fdopen(fd, "wb") as file:
                file.write(encode(doing))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def read(folder: Path) -> Doing | None:
    """What it says; None: nothing that can be read."""
    try:
        return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=Doing)
    except (OSError, ValueError):
        return None


def remove(folder: Path) -> None:
    """The run has ended."""
    with contextlib.suppress(OSError):
        (folder / FILE_NAME).unlink(missing_ok=True)
