"""How the steps of a training went: what ran as the plan says, what ran in eager and why, what was compiled.

In: one count per micro-batch and update. Out: `StepStats`. Not covered: warnings about them (answering.py).
"""

from __future__ import annotations

from typing import NamedTuple

MAX_REASONS = 20  # distinct ones kept: changing shapes must not grow the dict for ever
OTHER = "other reasons"


class StepStats(NamedTuple):
    """What became of the batches. batches = fast + all fallbacks."""

    batches: int  # micro-batches given to the step
    steps: int  # updates: times the optimizer stepped
    fast: int  # micro-batches whose forward and backward ran as the plan says
    fallbacks: dict[str, int]  # reason -> micro-batches that eager ran
    optimizer_fallbacks: dict[str, int]  # reason -> updates that the user's own optimizer did instead of the plan's way
    compiles: int  # programs that were built inside the steps so far
    recompiles: int  # of these: after the warm-up


class Counts:
    """Counts by reason, with a bound on their number."""

    def __init__(self) -> None:
        self.by_reason: dict[str, int] = {}

    def add(self, reason: str) -> None:
        """One more of this reason."""
        known = reason in self.by_reason or len(self.by_reason) < MAX_REASONS
        key = reason if known else OTHER
        self.by_reason[key] = self.by_reason.get(key, 0) + 1

    @property
    def total(self) -> int:
        """Of all reasons together."""
        return sum(self.by_reason.values())
