"""The bundle as a file: a plain zip with stored members, manifest first, and a digest of its frame; or a folder.

In: a folder with everything but the manifest, and the manifest without its files. Out: the bundle at its place, whole
or not at all. Members have no dates, so the same content gives the same bytes. Not covered: what goes in (pack.py).
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import msgspec

from compilot.artifacts.bundle import DIGEST, MANIFEST, SIGNATURE
from compilot.artifacts.frame import add_frame_digest
from compilot.errors import RunDirError
from compilot.files import atomic
from compilot.files.digests import file_record
from compilot.records import Manifest, encode

_OWN = (MANIFEST, DIGEST, SIGNATURE)
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip knows
_MODE = 0o644 << 16


def seal(folder: Path, manifest: Manifest, key: Path | None) -> Manifest:
    """Write manifest, its digest and its signature into the folder; returns the manifest with its files."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    files = tuple(file_record(folder / name, name) for name in names if name not in _OWN)
    whole = msgspec.structs.replace(manifest, files=files)
    raw = msgspec.json.format(encode(whole), indent=1) + b"\n"
    (folder / MANIFEST).write_bytes(raw)
    (folder / DIGEST).write_text(hashlib.sha256(raw).hexdigest() + "\n")
    if key is not None:
        from compilot.artifacts.signing import sign

        (folder / SIGNATURE).write_bytes(encode(sign(raw, key)) + b"\n")
    return whole


def publish(folder: Path, out: Path, *, as_folder: bool) -> None:
    """Put the sealed folder at its place as one file, or as a folder."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if as_folder:
            _publish_folder(folder, out)
        else:
            with atomic.writing(out) as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    for name in _ordered(folder):
                        _add(archive, folder, name)
                add_frame_digest(file)
    except OSError as problem:
        raise RunDirError(f"cannot write {out}: {problem.strerror}; choose another place.") from problem


def _ordered(folder: Path) -> list[str]:
    names = sorted(os.fspath(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    first = [name for name in _OWN if name in names]
    return [*first, *(name for name in names if name not in _OWN)]


def _add(archive: zipfile.ZipFile, folder: Path, name: str) -> None:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = _MODE
    info.file_size = (folder / name).stat().st_size  # tells zipfile whether it needs 64-bit sizes
    with (folder / name).open("rb") as source, archive.open(info, "w") as member:
        while block := source.read(1 << 20):
            member.write(block)


def _publish_folder(folder: Path, out: Path) -> None:
    if out.exists():
        raise RunDirError(f"{out} is there already; remove it or choose another place.")
    with atomic.making_folder(out) as partial:
        for name in _ordered(folder):
            place = partial / name
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic.copy_file(folder / name, place)
        for made in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            made.chmod(0o755)  # private while it was made, and the umask has no say: a bundle is to be deployed
