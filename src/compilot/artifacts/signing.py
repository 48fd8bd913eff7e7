"""Who made this? Ed25519 signatures.

In: bytes and key files (PEM). Out: a Signature record; or, of one, the id of the trusted key that made it, otherwise a
SignatureRefused. A key's id is the first 16 hex digits of the SHA-256 of its 32 raw bytes.
Covered: a wrong, missing or damaged signature, other kinds of keys, key files that others can read or change.
Not covered: expiry and revocation (remove the key's file), passphrases (keep the file where your secrets are kept).
Light to import: `cryptography` is loaded when a key is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compilot.errors import KeyProblem, SignatureRefused
from compilot.files import atomic
from compilot.records import Record

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ALGORITHM = "ed25519"
CONTEXT = b"compilot signature 1\0"  # signed with the data: a signature made for another purpose is none here
KEY_ID_DIGITS = 16
MAX_KEY_BYTES = 16 * 2**10  # a PEM key has 120
PUBLIC_SUFFIX = ".pub"
FileCheck = Callable[[os.stat_result], None]
_OTHER_KIND = "{} is not an Ed25519 key; make one with 'compilot keys new'."


class Signature(Record, frozen=True, kw_only=True):
    """Proof that the holder of a key saw some bytes."""

    key_id: str
    algorithm: str
    signature_b64: str


class PublicKey(NamedTuple):
    """A key to check signatures with."""

    key_id: str
    raw: bytes
    path: Path | None = None  # the file it came from


def generate_key(path: Path) -> PublicKey:
    """Make a key pair: the private key at the path (mode 0600), the public one beside it (.pub); replaces nothing."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    beside = public_path(path)
    try:
        _write_new(path, private, atomic.PRIVATE)
        _write_new(beside, public_pem(_public(key.public_key(), beside)), atomic.PUBLIC)
    except FileExistsError as problem:
        raise KeyProblem(f"{problem.filename} exists; choose another name, a key is never overwritten.") from None
    except OSError as problem:
        raise KeyProblem(f"cannot write {path}: {problem.strerror}; choose another place.") from problem
    return _public(key.public_key(), beside)


def sign(data: bytes, private_key: Path) -> Signature:
    """Sign bytes with the private key in a file."""
    key = _load_private(private_key)
    made = base64.b64encode(key.sign(CONTEXT + data)).decode()
    return Signature(key_id=_public(key.public_key()).key_id, algorithm=ALGORITHM, signature_b64=made)


def verify(data: bytes, signature: Signature, trusted: Sequence[PublicKey]) -> str:
    """The id of the trusted key that signed these bytes; raises SignatureRefused if none did."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if signature.algorithm != ALGORITHM:
        raise SignatureRefused(f"the signature is of kind '{signature.algorithm}'; this compilot checks {ALGORITHM}.")
    key = next((key for key in trusted if key.key_id == signature.key_id), None)
    if key is None:
        raise SignatureRefused(_untrusted(signature, trusted))
    try:
        raw = base64.b64decode(signature.signature_b64, validate=True)
        Ed25519PublicKey.from_public_bytes(key.raw).verify(raw, CONTEXT + data)
    except (InvalidSignature, binascii.Error, ValueError):
        why = f"the signature of key {key.key_id} does not fit: the data was changed after it was signed"
        raise SignatureRefused(f"{why}; get it again from where it was made.") from None
    return key.key_id


def load_public_key(path: Path, check: FileCheck | None = None) -> PublicKey:
    """The public key in a PEM file; check: as in read_key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = read_key(path, check)
    if b"PRIVATE KEY" in data:
        raise KeyProblem(f"{path} is a private key; give the public one ({public_path(path).name}).")
    key = _parse(path, data, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise KeyProblem(_OTHER_KIND.format(path))
    return _public(key, path)


def public_pem(key: PublicKey) -> bytes:
    """The text of a public key file."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(key.raw)
    return public.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)


def public_path(private_key: Path) -> Path:
    """Where the public key of a private one lies."""
    return private_key.with_name(private_key.name + PUBLIC_SUFFIX)


def _untrusted(signature: Signature, trusted: Sequence[PublicKey]) -> str:
    known = f"trusted are {', '.join(key.key_id for key in trusted)}" if trusted else "no key is trusted here"
    return f"it is signed with key {signature.key_id[:64]}, which is not trusted ({known}); see 'compilot keys trust'."


def _public(key: Ed25519PublicKey, path: Path | None = None) -> PublicKey:
    raw = key.public_bytes_raw()
    return PublicKey(hashlib.sha256(raw).hexdigest()[:KEY_ID_DIGITS], raw, path)


def _load_private(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _parse(path, read_private(path), lambda pem: load_pem_private_key(pem, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyProblem(_OTHER_KIND.format(path))
    return key


def _parse(path: Path, data: bytes, load: Callable[[bytes], object]) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "is not a key that can be read (PEM, no passphrase)"
        raise KeyProblem(f"{path} {why}; make one with 'compilot keys new'.") from None


def read_private(path: Path) -> bytes:
    """The bytes of a private key file, if nobody else may read it."""

    def check(opened: os.stat_result) -> None:
        mode = stat.S_IMODE(opened.st_mode)
        if mode & 0o077:
            why = f"others may read the private key {path} (mode {mode:04o})"
            raise KeyProblem(f"{why}; chmod 600 it, or make a new one.")

    return read_key(path, check)


def read_key(path: Path, check: FileCheck | None = None) -> bytes:
    """The bytes of a key file; check is asked about the very file that is read, and raises if it must not be."""
    try:
        with path.open("rb") as file:
            if check is not None:
                check(os.fstat(file.fileno()))
            return file.read(MAX_KEY_BYTES)
    except OSError as problem:
        raise KeyProblem(f"cannot read key {path}: {problem.strerror}; check the path.") from problem


def _write_new(path: Path, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
