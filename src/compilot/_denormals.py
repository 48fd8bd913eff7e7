"""Denormal numbers: does this thread take them as zero? In: nothing. Out: a bool. Setting it: runtime/process.py."""

from __future__ import annotations

import torch


def flushes_denormals() -> bool:
    """Whether this thread flushes denormal numbers to zero: torch can set it but not tell it, so it is tried."""
    smallest_normal = torch.tensor(torch.finfo(torch.float32).tiny)
    return bool((smallest_normal * 0.5) == 0)
