"""What no fingerprint covers, in plain words. In: `Uncovered` things. Out: one text that names the first few."""

from __future__ import annotations

from collections.abc import Sequence

from compilot.identity.values import Uncovered

MAX_TOLD = 3  # enough to find the others by


def told(found: Sequence[Uncovered]) -> str:
    """'layer.table (it is an open file)', and how many more there are."""
    first = ", ".join(f"{one.path} ({one.why})" for one in found[:MAX_TOLD])
    return first + (f", and {len(found) - MAX_TOLD} more" if len(found) > MAX_TOLD else "")
