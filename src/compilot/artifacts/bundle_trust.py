"""May this bundle be loaded? Asked before any of it is understood.

In: a bundle's path, the bytes of its manifest and signature, and whom the user trusts. Out: the decision, or
UntrustedBundle. The rules are trust.py's; here they meet the bytes of a signature file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot.artifacts.trust import TrustDecision, decide_trust, trusted_keys
from compilot.errors import UntrustedBundle

if TYPE_CHECKING:
    from compilot.artifacts.signing import Signature


class Trust(NamedTuple):
    """Whom the user trusts."""

    keys: Sequence[str | os.PathLike[str]] = ()  # public key files or folders, besides those trusted anyway
    require_signature: bool = False


def trusted_or_refused(
    path: Path,
    manifest: bytes,
    signature: bytes | None,
    trust: Trust,
    seen: Mapping[str, os.stat_result] | None = None,
) -> TrustDecision:
    """The decision for a bundle that may be loaded; UntrustedBundle for all others. seen: of its open container."""
    keys = trusted_keys([Path(key) for key in trust.keys]) if signature is not None else ()
    decision = decide_trust(
        path,
        manifest,
        None if signature is None else _parsed(path, signature),
        trusted=keys,
        require_signature=trust.require_signature,
        seen=seen,
    )
    if not decision.ok:
        raise UntrustedBundle(f"{path} is not loaded: {decision.why}.")
    return decision


def _parsed(path: Path, raw: bytes) -> Signature:
    from compilot.artifacts.signing import Signature

    try:
        return msgspec.json.decode(raw, type=Signature)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UntrustedBundle(f"{path} is not loaded: its signature cannot be read ({problem}).") from problem
