"""`compilot.verify`: is a bundle whole, is it trusted, does it fit here, how fast does it start?

In: a bundle. Out: a Verified; one that is refused is an answer, too, so look at `ok`. Nothing of the bundle is run
unless every answer before is yes. With time=True a fresh process starts it (startup.py). With openssf_key an OpenSSF
model signature is asked for first, besides the usual trust and not in its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from compilot.errors import BundleError, InputError
from compilot.records import Record

if TYPE_CHECKING:
    from compilot.artifacts.container import Container

LIMIT_S = 600.0  # a start that takes longer is not one
BESIDE_LIBRARY = "artifacts/*/model-*.json"  # what an AOTInductor library calls by name

AnyPath = str | os.PathLike[str]


class OpenSSFSigner(Record, frozen=True, kw_only=True):
    """What an OpenSSF model signature says."""

    ok: bool
    signature: Path | None = None  # its file
    key_sha256: str = ""  # of the public key as PEM


class BundleDifference(Record, frozen=True, kw_only=True):
    """What is not as it was where the bundle was packed."""

    severity: str  # "unsafe": it is not loaded here; "unproven": only its speed is
    sentence: str


class Verified(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What is known of a bundle. Of one that is refused: only the fields up to `openssf`."""

    bundle: Path
    fits: bool  # it may be used on this machine
    refused: str | None = None  # why it is not trusted, not whole or did not start
    openssf: OpenSSFSigner | None = None  # None: nobody asked
    model: str | None = None  # its class
    engine: str | None = None
    created: str | None = None  # ISO 8601, UTC
    digest: str | None = None  # SHA-256 of the manifest
    trusted_by: str | None = None  # "signed with trusted key ...", "not signed; nobody but this user ..."
    files: int | None = None
    size_bytes: int | None = None
    weights: str | None = None  # where they are: "baked", "model" or "carried"
    standalone: bool | None = None  # no model object is needed
    needs_compiler: bool | None = None  # at the start
    needs_operators: tuple[str, ...] = ()  # that the user's own code registers
    start_s: tuple[float | None, ...] = ()  # of each entry, where it was packed
    differences: tuple[BundleDifference, ...] = ()
    sentences: tuple[str, ...] = ()  # what the plan and the packing say
    startup: dict[str, float] | None = None  # seconds of each step in a fresh process; None: not timed

    @property
    def ok(self) -> bool:
        """It is whole, trusted and fits this machine."""
        return self.fits and self.refused is None


def verify(
    bundle: AnyPath,
    *,
    time: bool = False,
    trusted_keys: Sequence[AnyPath] = (),
    require_signature: bool = False,
    openssf_key: AnyPath | None = None,
    openssf_signature: AnyPath | None = None,
) -> Verified:
    """Check a bundle: digests, trust, fit to this machine. A bad one is no error: look at `ok` of what is returned.

    time=True starts it in a fresh process and says what each step took. trusted_keys are public keys to trust besides
    the usual ones. openssf_key is a public key to check its OpenSSF model signature with, which lies beside the bundle
    unless openssf_signature names it.
    """
    path, keys = Path(bundle), [Path(key) for key in trusted_keys]
    if openssf_key is None and openssf_signature is not None:
        raise InputError("an OpenSSF signature needs the public key to check it with (openssf_key).")
    if not path.exists():
        raise BundleError(f"there is no bundle at {path}; check the path.")
    openssf = None if openssf_key is None else OpenSSFSigner(ok=False)
    try:
        if openssf_key is not None:
            openssf = _signer(path, Path(openssf_key), None if openssf_signature is None else Path(openssf_signature))
        found = _looked_at(path, keys, require_signature)
        if time and found.fits and found.standalone:
            found = msgspec.structs.replace(found, startup=_start_up(path, keys, require_signature))
    except BundleError as refused:
        found = Verified(bundle=path, fits=False, refused=str(refused))
    return msgspec.structs.replace(found, openssf=openssf)


def _signer(bundle: Path, key: Path, signature: Path | None) -> OpenSSFSigner:
    """Who signed it by OpenSSF model signing; UntrustedBundle for another key."""
    from compilot.artifacts.openssf import check

    signer = check(bundle, key, signature)
    return OpenSSFSigner(ok=True, signature=signer.signature, key_sha256=signer.key_sha256)


def _looked_at(bundle: Path, keys: Sequence[Path], require_signature: bool) -> Verified:
    """Everything there is to know without running any of it."""
    from compilot.artifacts import bundle as bundles
    from compilot.artifacts.bundle_trust import Trust
    from compilot.runtime import staleness

    with bundles.open_bundle(bundle, Trust(keys, require_signature)) as opened:
        checked = bundles.check_files(opened.container, opened.manifest)
        manifest = opened.manifest
        differing = staleness.machine_differences(manifest)
        return Verified(
            bundle=bundle,
            fits=not any(d.severity == "unsafe" for d in differing),
            model=manifest.label,
            engine=manifest.engine,
            created=manifest.created,
            digest=opened.digest,
            trusted_by=opened.trusted_by,
            files=len(manifest.files),
            size_bytes=checked,
            weights=str(manifest.weights),
            standalone=manifest.standalone,
            needs_compiler=any(entry.needs_compiler for entry in manifest.entries),
            needs_operators=tuple(operators_needed(opened.container)),
            start_s=tuple(entry.start_s for entry in manifest.entries),
            differences=tuple(BundleDifference(severity=str(d.severity), sentence=d.sentence) for d in differing),
            sentences=manifest.sentences,
        )


def operators_needed(container: Container) -> list[str]:
    """Operators that its libraries call and that torch alone does not have."""
    from compilot._torch import operators
    from compilot.artifacts.container import read

    beside = [(name, size) for name, size in container.sizes.items() if fnmatch(name, BESIDE_LIBRARY)]
    return operators.unregistered(
        called for name, size in beside for called in operators.named_in(read(container, name, size))
    )


def _start_up(bundle: Path, keys: Sequence[Path], require_signature: bool) -> dict[str, float]:
    """Seconds of each step in a fresh process."""
    command = [sys.executable, "-m", "compilot.api.startup", str(bundle)]
    command += [word for key in keys for word in ("--keys", str(key))]
    command += ["--require-signature"] if require_signature else []
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BundleError(f"{bundle} did not start within {LIMIT_S:.0f} s.") from None
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise BundleError(f"{bundle} did not start: {last}")
    told: dict[str, Any] = msgspec.json.decode(run.stdout.splitlines()[-1])
    if "refused" in told:
        raise BundleError(told["refused"])
    steps: dict[str, float] = told["steps"]
    return steps
