"""The files of a compile cache as one digest in the plan, and as a list beside it.

In: a candidate's folder with a cache folder in it. Out: one ArtifactFile for the plan (a digest over the names, sizes
and digests of the files), and a file with exactly those names, sizes and digests. The list needs no digest of its own:
what it says is right if it gives the plan's digest. Files that torch adds later are not in it, and it does not name
what torch rewrites in place: locks, unfinished files, and its notes of measured times, which are numbers and no code.
Covered: lists that are damaged or are another folder's. Not covered: comparing the files (planfolder.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from compilot.files import atomic
from compilot.files.digests import file_record
from compilot.records import ArtifactFile, encode

_SUFFIX = ".files.json"
_UNFINISHED = (".lock", ".tmp")
_REWRITTEN = ("cache", "memoizer_cache.json")  # names in the cache folder: times that torch measured


def list_name(name: str) -> str:
    """Where the list of a cache folder lies: "inductor/" has "inductor.files.json" beside it."""
    return name.rstrip("/") + _SUFFIX


def is_list(name: str) -> bool:
    """Whether a name in a candidate's folder is that of a list."""
    return name.endswith(_SUFFIX) and "/" not in name


def write_list(workspace: Path, name: str) -> ArtifactFile | None:
    """List the files of a cache folder beside it; returns its record for the plan, None where nothing is in it.

    The folder is closed to everybody else: what torch adds to it later, under whatever umask, is the user's alone.
    """
    folder = workspace / name
    files = tuple(_records(folder))
    if not files:
        return None
    folder.chmod(0o700)
    atomic.write_bytes(workspace / list_name(name), encode(files) + b"\n")
    return folder_record(name, files)


def folder_record(name: str, files: Iterable[ArtifactFile]) -> ArtifactFile:
    """A folder as one artifact: a digest over the sorted names, sizes and digests of its files."""
    digest, size = hashlib.sha256(), 0
    for one in sorted(files, key=lambda file: file.name):
        digest.update("\0".join([one.name, str(one.size_bytes), one.sha256, *one.pieces, ""]).encode())
        size += one.size_bytes
    return ArtifactFile(name=name, sha256=digest.hexdigest(), size_bytes=size)


def read_list(data: bytes, wanted: ArtifactFile) -> tuple[ArtifactFile, ...]:
    """The files of a folder, named from the candidate's folder; ValueError for a list that is not the plan's."""
    try:
        files = msgspec.json.decode(data, type=tuple[ArtifactFile, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"it is damaged ({problem})") from problem
    if folder_record(wanted.name, files) != wanted:
        raise ValueError("it is not the list that the plan was made with")
    return tuple(msgspec.structs.replace(file, name=wanted.name + file.name) for file in files)


def _records(folder: Path) -> Sequence[ArtifactFile]:
    names = sorted(os.fspath(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [file_record(folder / name, name) for name in names if _stays(name)]


def _stays(name: str) -> bool:
    """Whether torch leaves a file of its cache as it is."""
    return not name.endswith(_UNFINISHED) and PurePosixPath(name).parts[0] not in _REWRITTEN
