"""OpenSSF model signing beside a bundle, for pipelines that already use it.

In: a bundle (file or folder), a key file (PEM; P-256, P-384 or P-521), a detached signature (`model.cpbundle.sig`) as
the package `model-signing` writes and reads it. Out: the signature, or who signed; UntrustedBundle where it is not
for this bundle. All bytes of the bundle are hashed, none is understood.
Covered: another key, changed bytes, added and missing files, a damaged or missing signature, one that leaves out what
a bundle stands on, key files that others can read or change, the package not installed.
Not covered: keyless (Sigstore) signatures, certificates, passphrases; signatures over shards of files, which
model-signing 1.1 makes but does not read; a bundle that is changed after the check. Loading a bundle never asks here:
that is trust.py's rule. `model_signing` is imported only where it is used.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from compilot.artifacts.bundle import LARGEST, MANIFEST
from compilot.artifacts.signing import read_key, read_private
from compilot.artifacts.trust import must_be_safe
from compilot.errors import EnvironmentProblem, KeyProblem, UntrustedBundle, first_cause
from compilot.files import atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

SUFFIX = ".sig"
CURVES = ("secp256r1", "secp384r1", "secp521r1")  # those that model-signing takes
INSTALL = "pip install model-signing pyOpenSSL"
_MAKE = "make one with 'openssl ecparam -name prime256v1 -genkey -noout -out key.pem'"
_TAKE = "take the public half with 'openssl ec -in key.pem -pubout -out key.pub'"
_WHOLE_FILE = "."  # what model-signing calls a model that is one file


class Signer(NamedTuple):
    """Who signed a bundle, and where that is written."""

    signature: Path
    key_sha256: str  # of the public key as PEM: what model-signing itself writes into a signature


def signature_path(bundle: Path) -> Path:
    """Where a bundle's signature lies if nothing else is said: beside it."""
    named = bundle if bundle.name.strip(".") else bundle.resolve()
    return named.with_name(named.name + SUFFIX)


def ready_to_sign(private_key: Path) -> None:
    """KeyProblem or EnvironmentProblem if signing would fail for want of key or package: asked before long work."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_private(private_key)
    key = _parsed(private_key, lambda: load_pem_private_key(data, password=None), _MAKE)
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in CURVES:
        raise KeyProblem(f"{private_key} is not a P-256, P-384 or P-521 key, which OpenSSF signing needs; {_MAKE}.")
    _package()


def sign(bundle: Path, private_key: Path) -> Path:
    """Write the signature of a bundle beside it; returns its path."""
    ready_to_sign(private_key)
    signer = _package().signing.Config().use_elliptic_key_signer(private_key=private_key)
    place = signature_path(bundle)
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            signer.sign(bundle.resolve(), Path(folder) / "made")
            atomic.write_bytes(place, (Path(folder) / "made").read_bytes())
    except Exception as problem:
        why = f"{bundle} has no OpenSSF signature: {place} could not be made ({first_cause(problem)})"
        raise EnvironmentProblem(f"{why}; fix that and pack it again.") from problem
    return place


def check(bundle: Path, public_key: Path, signature: Path | None = None) -> Signer:
    """Who signed this bundle, if it was the holder of this key; otherwise UntrustedBundle."""
    public_key = Path(os.path.realpath(public_key))  # once: what is asked about is what model-signing reads
    key_sha256 = _fingerprint(public_key)
    place = signature_path(bundle) if signature is None else signature
    raw = _read_signature(bundle, place)
    verifier = _package().verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            copy = Path(folder) / "signature"  # so that what was checked is what _covered reads
            copy.write_bytes(raw)
            verifier.verify(bundle.resolve(), copy)
        covered = _covered(raw)
    except Exception as problem:  # whatever a damaged signature leads to: it is not a valid one
        _refuse(bundle, place, _told(problem), problem)
    needed = MANIFEST if bundle.is_dir() else _WHOLE_FILE
    if needed not in covered:
        _refuse(bundle, place, f"it leaves out {needed}, which the rest of the bundle stands on")
    return Signer(place, key_sha256)


def _fingerprint(public_key: Path) -> str:
    from cryptography.hazmat.primitives import serialization as forms

    pem = _load_public(public_key).public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(pem).hexdigest()


def _load_public(path: Path) -> EllipticCurvePublicKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = read_key(path, lambda opened: must_be_safe(path, opened))
    if b"PRIVATE KEY" in data:
        raise KeyProblem(f"{path} is a private key; {_TAKE} and give that.")
    key = _parsed(path, lambda: load_pem_public_key(data), _TAKE)
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise KeyProblem(f"{path} is not a P-256, P-384 or P-521 key, so no OpenSSF signature is by it; {_TAKE}.")
    return key


def _parsed(path: Path, load: Callable[[], object], advice: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyProblem(f"{path} is not a key that can be read (PEM, no passphrase); {advice}.") from None


def _read_signature(bundle: Path, place: Path) -> bytes:
    try:
        with place.open("rb") as file:
            return file.read(LARGEST)  # one that is longer is cut off, and then refused as damaged
    except OSError as problem:
        why = f"{bundle} has no OpenSSF signature at {place} ({problem.strerror})"
        advice = "say where it is (openssf_signature), or sign where it is packed ('compilot pack --openssf-key KEY')"
        raise UntrustedBundle(f"{why}; {advice}.") from problem


def _covered(signature: bytes) -> set[str]:
    """The files that a signature speaks of."""
    statement = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    return {resource["name"] for resource in statement["predicate"]["resources"]}


def _refuse(bundle: Path, place: Path, why: str, cause: Exception | None = None) -> NoReturn:
    advice = "get both again from where they were made, or give the key that signed them"
    raise UntrustedBundle(f"the OpenSSF signature {place} does not match {bundle}: {why}; {advice}.") from cause


def _told(problem: Exception) -> str:
    """What is wrong, in our words where model-signing's reason is known."""
    from cryptography.exceptions import InvalidSignature

    if isinstance(problem, InvalidSignature) or str(problem).startswith("Key mismatch"):
        return "it was made with another key, or was changed"
    if str(problem).startswith("Signature mismatch"):
        return "the bundle is not the one that was signed"
    return f"model-signing cannot check it ({first_cause(problem)})"


def _package() -> Any:
    """The package `model_signing`."""
    try:
        import model_signing
    except ImportError as problem:
        own = problem.name in (None, "model_signing")
        missing = "model-signing" if own else f"{problem.name}, which model-signing needs,"
        raise EnvironmentProblem(f"{missing} is not installed; {INSTALL}.") from problem
    except Exception as problem:  # its dependencies check each other's versions while they are imported
        raise EnvironmentProblem(f"model-signing cannot be imported ({first_cause(problem)}); {INSTALL}.") from problem
    return model_signing
