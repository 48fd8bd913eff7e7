"""Signing a bundle that was packed elsewhere. In: a bundle file, a private key. Out: the same content, signed.

For whoever has the key: machines that pack for others need none. The bundle is checked as a push would check it, so
that nothing damaged is signed. Not covered: whether it may be believed (artifacts/trust.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from compilot.artifacts.bundle import LARGEST, MANIFEST, SIGNATURE
from compilot.artifacts.container import open_container, opened_member, read
from compilot.artifacts.signing import sign
from compilot.artifacts.store.describe import refuse_damaged
from compilot.files import atomic
from compilot.packing.writing import publish
from compilot.records import encode


def signed_copy(bundle: Path, out: Path, key: Path) -> None:
    """Write the bundle with a signature of this key; one that it had is replaced."""
    refuse_damaged(bundle)
    staged = atomic.partial_name(out.absolute())
    staged.mkdir(mode=0o700, parents=True)
    try:
        with open_container(bundle) as container:
            for name in container.sizes:
                place = staged / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with opened_member(container, name) as member, place.open("wb") as file:
                    shutil.copyfileobj(member, file, 1 << 20)
            raw = read(container, MANIFEST, LARGEST)
        (staged / SIGNATURE).write_bytes(encode(sign(raw, key)) + b"\n")
        publish(staged, out, as_folder=False)
    finally:
        atomic.remove(staged)
