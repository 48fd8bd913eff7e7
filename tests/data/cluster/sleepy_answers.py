"""A function that a test has called on nodes."""

from __future__ import annotations

import os


def where(payload: bytes) -> bytes:
    """What was sent, the node, its thread settings and the folder it works in."""
    threads = os.environ.get("OMP_NUM_THREADS", "none")
    return f"{payload.decode()} {os.environ['COMPILOT_NODE']} {threads} {os.path.basename(os.getcwd())}".encode()
