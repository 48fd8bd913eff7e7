"""The files of a candidate's folder as records.

In: a folder and names in it. Out: ArtifactFile records with digest and size. Not covered: reading them back; each
engine does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from compilot.engines.protocol import Infeasible
from compilot.records import ArtifactFile

_BLOCK = 1 << 20


def artifact_files(folder: Path, names: Sequence[str]) -> tuple[ArtifactFile, ...]:
    """Records of these files, in the order of their names."""
    return tuple(file_record(folder / name, name) for name in sorted(names))


def folder_record(folder: Path, name: str) -> ArtifactFile:
    """A folder as one artifact: a digest over the sorted names, sizes and contents of its files, locks left out."""
    digest, size = hashlib.sha256(), 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".lock")):
        one = file_record(path, os.fspath(path.relative_to(folder)))
        digest.update(f"{one.name}\0{one.size_bytes}\0".encode() + bytes.fromhex(one.sha256))
        size += one.size_bytes
    return ArtifactFile(name=name, sha256=digest.hexdigest(), size_bytes=size)


def file_record(path: Path, name: str) -> ArtifactFile:
    """The record of one file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return ArtifactFile(name=name, sha256=digest.hexdigest(), size_bytes=path.stat().st_size)


def artifact_path(folder: Path | None, name: str) -> Path:
    """An engine's file, or Infeasible when the plan came without it."""
    path = None if folder is None else folder / name
    if path is None or not path.is_file():
        raise Infeasible(f"{name} is missing beside the plan; keep the plan's folder, or run 'compilot tune' again")
    return path
