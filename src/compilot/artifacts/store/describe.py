"""What a bundle file says about itself, and whether its signature may be believed.

In: a bundle of unknown origin. Out: a Description for the store's index, or a refusal. It is not unpacked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from compilot.artifacts.bundle import LARGEST, MANIFEST, SIGNATURE, check_files, check_listing, read_manifest
from compilot.artifacts.bundle_trust import Trust, trusted_or_refused
from compilot.artifacts.container import open_container, read
from compilot.artifacts.signing import Signature
from compilot.artifacts.store.layout import Description, StoreEntry
from compilot.errors import BundleError, InputError, StoreError
from compilot.records import Weights


def describe(path: Path) -> Description:
    """The description of a bundle file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; a store holds bundle files: pack it as one file.")
    manifest = read_manifest(path)
    return Description(
        label=manifest.label,
        engine=manifest.engine,
        engines=manifest.engines,
        needs_compiler=any(entry.needs_compiler for entry in manifest.entries),
        carries_weights=manifest.weights is Weights.CARRIED,
        bundle_schema=manifest.schema,
        created=manifest.created,
        compilot=manifest.compilot,
        fingerprint=manifest.fingerprint,
    )


def claimed_signer(path: Path) -> str:
    """The id of the key that a bundle says it is signed with, "" for none; whether that is true is asked by a pull."""
    with open_container(path) as container:
        if SIGNATURE not in container.sizes:
            return ""
        raw = read(container, SIGNATURE, LARGEST)
    try:
        return msgspec.json.decode(raw, type=Signature).key_id
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise BundleError(f"{path} is damaged: its signature cannot be read ({problem}); pack it again.") from problem


def refuse_damaged(path: Path) -> None:
    """BundleError for what would be refused wherever it is pulled: a wrong digest, a file too many or missing."""
    manifest = read_manifest(path)
    with open_container(path) as container:
        check_listing(container, manifest)
        container.check_frame()
        check_files(container, manifest)


def check_pulled(path: Path, entry: StoreEntry, trust: Trust, name: str) -> str | None:
    """Refuse what the index lied about and what nobody trusted signed; gives who signed it, None for nobody.

    name: what to call the bundle; the path may be that of a temporary file.
    """
    path = Path(os.path.realpath(path))
    with _called(name, path):
        return _checked(path, entry, trust)


def _checked(path: Path, entry: StoreEntry, trust: Trust) -> str | None:
    if describe(path).fingerprint != entry.fingerprint:
        raise StoreError(
            f"{entry.index_name} is not about its bundle: the fingerprints differ; remove that index entry."
        )
    with open_container(path) as container:
        signature = read(container, SIGNATURE, LARGEST) if SIGNATURE in container.sizes else None
        if signature is None and not trust.require_signature:
            return None
        return trusted_or_refused(path, read(container, MANIFEST, LARGEST), signature, trust).key_id


@contextmanager
def _called(name: str, path: Path) -> Iterator[None]:
    """Refusals speak of the bundle by this name instead of its path."""
    try:
        yield
    except BundleError as problem:
        raise type(problem)(str(problem).replace(str(path), name)) from problem
