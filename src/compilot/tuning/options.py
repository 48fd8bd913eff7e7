"""What the user asked for. In: the command line or keyword arguments. Out: one record for a whole run."""

from __future__ import annotations

from typing import NamedTuple

from compilot.records import Goal, Precision
from compilot.verdict.finalists import FINALISTS

LATENCY = Goal()


class TuneOptions(NamedTuple):
    """Everything that a run depends on beside the workload."""

    budget_s: float = 300.0
    goal: Goal = LATENCY
    engines: tuple[str, ...] = ()  # () means every engine found
    finalists: int = FINALISTS
    max_memory_bytes: int | None = None
    argv: tuple[str, ...] = ()
    allow_precision: tuple[Precision, ...] = ()  # lower ones that may be tried
    tolerance: float | None = None  # relative RMSE allowed to those; None: each one's default
