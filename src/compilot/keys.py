"""The keys that bundles are signed with: what `compilot keys new`, `trust` and `ls` do.

    key = compilot.keys.new("release")
    compilot.pack("compilot-runs/net", "net.cpbundle", sign="release")
    compilot.keys.trust(key.public)  # where it is to be loaded

In: key files. Out: a Key. Only public keys are ever copied; a private key stays where it was made. Light to import.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.records import Record

if TYPE_CHECKING:
    from compilot.artifacts.signing import PublicKey

__all__ = ["Key", "ls", "new", "trust"]


class Key(Record, frozen=True, kw_only=True):
    """A key for signatures."""

    key_id: str  # the first 16 hex digits of the SHA-256 of the public key
    public: Path | None  # its file, to be given to those who load
    private: Path | None = None  # its secret file, where it was just made


def new(path: str | os.PathLike[str]) -> Key:
    """Make a key pair to sign bundles with: the private key at the path, the public one beside it (.pub)."""
    from compilot.artifacts.signing import generate_key

    made = generate_key(Path(path))
    return Key(key_id=made.key_id, public=made.path, private=Path(path))


def trust(file: str | os.PathLike[str]) -> Key:
    """Load bundles that were signed with this public key from now on; one that is trusted already stays."""
    from compilot.artifacts.signing import PUBLIC_SUFFIX, load_public_key, public_pem
    from compilot.artifacts.trust import trusted_folder
    from compilot.files import atomic
    from compilot.files.private import private_directory

    key = load_public_key(Path(file))
    folder = private_directory(trusted_folder())
    known = next(iter(folder.glob(f"*{key.key_id}{PUBLIC_SUFFIX}")), None)
    name = re.sub(r"[^\w.-]", "_", Path(file).name.split(".")[0])
    path = known or folder / f"{name}-{key.key_id}{PUBLIC_SUFFIX}"
    if known is None:
        atomic.write_bytes(path, public_pem(key))
    return Key(key_id=key.key_id, public=path)


def ls() -> tuple[Key, ...]:
    """The trusted keys."""
    from compilot.artifacts.trust import trusted_keys

    return tuple(_key(key) for key in trusted_keys())


def _key(key: PublicKey) -> Key:
    return Key(key_id=key.key_id, public=key.path)
