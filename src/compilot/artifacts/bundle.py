"""Bundles: one file (or folder) with a plan, its engines' files, and a manifest that has the digest of each.

In: a path of unknown origin. Out: a Bundle whose manifest is trusted, parsed and matches what is there; its files are
checked against their digests while they are unpacked, or in place. The order is the point: whether it is trusted comes
first (trust.py), then the manifest's own digest, then parsing; no byte of any other file is used before its digest was
right. Covered: truncated, changed, foreign and malformed bundles. Not covered: whether it fits this machine and model
(runtime/staleness.py).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.artifacts.bundle_trust import Trust, trusted_or_refused
from compilot.artifacts.container import Container, is_safe, open_container, open_plain, read, refuse, span_of
from compilot.errors import BundleError
from compilot.files.digests import FilePart, Span, copy_span, digest_of, digest_read, parts_of, side_by_side
from compilot.records import BUNDLE_SCHEMA, ArtifactFile, Manifest

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"  # of the manifest's bytes: damage in it must not pass for content
SIGNATURE = "signature.json"
PLAN = "plan.json"
WEIGHTS = "weights.safetensors"
SUFFIX = ".cpbundle"

OF_THIS_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # such failures say nothing about the file
_LONGEST_NAME = 255  # bytes, on all file systems of Linux
LARGEST = 32 * 2**20  # of manifest and plan: an inductor cache of some thousand files has a manifest of 1 MB


class Bundle(NamedTuple):
    """An open bundle that is trusted."""

    container: Container
    manifest: Manifest
    digest: str  # SHA-256 of the manifest: the bundle's identity
    trusted_by: str  # who: "signed with trusted key 3f...", "not signed; nobody but this user and root can change it"
    changeable: bool = False  # others may write to it: it is read once, into a private place, and not again

    @property
    def path(self) -> Path:
        return self.container.path


@contextmanager
def open_bundle(path: Path, trust: Trust) -> Iterator[Bundle]:
    """Open a bundle: trust first, then the digest of the manifest, then its content."""
    with open_container(path) as container:
        path = container.path
        raw = read(container, MANIFEST, LARGEST)
        signature = read(container, SIGNATURE, LARGEST) if SIGNATURE in container.sizes else None
        trusted = trusted_or_refused(path, raw, signature, trust, container.seen)
        digest = hashlib.sha256(raw).hexdigest()
        if read(container, DIGEST, 256).strip() != digest.encode():
            refuse(path, f"{MANIFEST} does not match its digest")
        manifest = _parsed(path, raw)
        check_listing(container, manifest)
        container.check_frame()
        yield Bundle(container, manifest, digest, trusted.why, bool(trusted.changeable))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle, by its own digest only: to list and compare bundles, not to run them."""
    with open_container(path) as container:
        raw = read(container, MANIFEST, LARGEST)
        if read(container, DIGEST, 256).strip() != hashlib.sha256(raw).hexdigest().encode():
            refuse(path, f"{MANIFEST} does not match its digest")
        return _parsed(path, raw)


def is_bundle(path: Path) -> bool:
    """Whether a path is meant as a bundle: a folder by its manifest, a file by its suffix or first bytes."""
    if path.is_dir():
        return (path / MANIFEST).is_file()
    if path.suffix == SUFFIX:
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _parsed(path: Path, raw: bytes) -> Manifest:
    try:
        schema = msgspec.json.decode(raw, type=_Schema).schema
        if schema != BUNDLE_SCHEMA:
            refuse(path, f"it has bundle schema {schema}, this compilot reads {BUNDLE_SCHEMA}")
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as problem:
        refuse(path, f"{MANIFEST}: {problem}", problem)


class _Schema(msgspec.Struct):
    schema: int


def check_listing(container: Container, manifest: Manifest) -> None:
    """Exactly the files that the manifest names, with their sizes: nothing missing, nothing more."""
    wanted = {file.name: file.size_bytes for file in manifest.files}
    if len(wanted) != len(manifest.files):
        refuse(container.path, f"{MANIFEST} names a file twice")
    if unsafe := next((name for name in wanted if not is_safe(name)), None):
        refuse(container.path, f"{MANIFEST} names {unsafe!r}, which may lead out of the bundle")
    if odd := next((name for name in wanted if not _can_be_laid_out(name, wanted)), None):
        refuse(container.path, f"{MANIFEST} names {odd!r}, which cannot lie in one folder with its other files")
    for named in _named(manifest):
        if named not in wanted:
            refuse(container.path, f"{MANIFEST} speaks of {named!r}, which is not among its files")
    for folder in (entry.folder for entry in manifest.entries):
        if folder and not is_safe(folder):
            refuse(container.path, f"{MANIFEST} names {folder!r}, which may lead out of the bundle")
    own = {MANIFEST, DIGEST, SIGNATURE}
    there = {name: size for name, size in container.sizes.items() if name not in own}
    for name in sorted(wanted.keys() | there.keys()):
        if wanted.get(name) != there.get(name):
            refuse(container.path, f"{name} {_mismatch(wanted.get(name), there.get(name))}")


def _can_be_laid_out(name: str, names: Collection[str]) -> bool:
    """No part is longer than file systems take, and no folder on its way is a file."""
    parts = name.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return all(len(part.encode()) <= _LONGEST_NAME for part in parts) and not any(one in names for one in above)


def _named(manifest: Manifest) -> list[str]:
    """Files that the manifest relies on besides listing them."""
    golden = [entry.golden for entry in manifest.entries if entry.golden is not None]
    return [name for one in golden for name in (one.inputs, one.outputs)]


def _mismatch(wanted: int | None, there: int | None) -> str:
    if there is None:
        return "is missing"
    return "is not in the manifest" if wanted is None else f"has {there} bytes instead of {wanted}"


def unpack_files(container: Container, manifest: Manifest, folder: Path) -> None:
    """Every file's bytes at a private place; BundleError if a copy is not what the manifest says."""
    for file in manifest.files:
        place = folder / file.name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.touch(mode=0o600, exist_ok=False)
    side_by_side(partial(_unpack, container, folder), _parts(container.path, manifest))


def _unpack(container: Container, folder: Path, file: ArtifactFile, part: FilePart) -> None:
    with ExitStack() as opened:
        with _refusing(container.path, file):
            whole = opened.enter_context(container.span(file.name))
        copy = opened.enter_context((folder / file.name).open("r+b", buffering=0))
        with _refusing(container.path, file, spared=OSError):  # such are of the place, not of the bundle
            copy.seek(part.start)
            copy_span(part.within(whole), copy.fileno())
            _compare(container.path, file, part, digest_of(part.within(Span(copy.fileno(), 0, file.size_bytes))))


def check_unpacked(folder: Path, manifest: Manifest) -> None:
    """Check every file's digest in a private folder; what else lies there is not looked at."""

    def check(file: ArtifactFile, part: FilePart) -> None:
        with _refusing(folder, file), open_plain(folder / file.name) as opened:
            whole = _whole(folder, file, span_of(opened))
            _compare(folder, file, part, digest_of(part.within(whole)))

    side_by_side(check, _parts(folder, manifest))


def check_files(container: Container, manifest: Manifest) -> int:
    """Check every file's digest where it lies; returns the bytes that were read."""

    def check(file: ArtifactFile, part: FilePart) -> None:
        with _refusing(container.path, file), container.span(file.name) as found:
            whole = _whole(container.path, file, found)
            _compare(container.path, file, part, digest_read(part.within(whole)))

    side_by_side(check, _parts(container.path, manifest))
    return sum(file.size_bytes for file in manifest.files)


def _parts(path: Path, manifest: Manifest) -> list[tuple[ArtifactFile, FilePart]]:
    try:
        return [(file, part) for file in manifest.files for part in parts_of(file)]
    except ValueError as error:
        refuse(path, f"{MANIFEST} has more or fewer pieces than a file", error)


def _whole(path: Path, file: ArtifactFile, found: Span) -> Span:
    if found.size != file.size_bytes:
        refuse(path, f"{file.name} {_mismatch(file.size_bytes, found.size)}")
    return found


def _compare(path: Path, file: ArtifactFile, part: FilePart, digest: str) -> None:
    if digest != part.sha256:
        refuse(path, f"{file.name} does not match its digest")


@contextmanager
def _refusing(path: Path, file: ArtifactFile, *, spared: type[Exception] = BundleError) -> Iterator[None]:
    """What goes wrong while a file is read means that the bundle is refused; but not what is this process's own."""
    try:
        yield
    except (BundleError, spared):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OF_THIS_PROCESS:
            raise
        refuse(path, f"{file.name} cannot be read ({type(error).__name__}: {error})", error)
