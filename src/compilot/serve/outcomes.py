"""What came of one call that both eager and a plan answered. In: nothing. Out: records. Light: a Swap imports it."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple


class Verdict(enum.Enum):
    """What a comparison found."""

    SAME = "same"
    MISMATCH = "mismatch"
    FAILED = "failed"  # the engine, where eager did not
    NOT_TAKEN = "not taken"  # eager answers such calls, whatever the plan


class Outcome(NamedTuple):
    """One call, answered by eager and by the plan."""

    verdict: Verdict
    eager: Any
    plan: Any = None
    why: str = ""
    eager_s: float = 0.0
    plan_s: float = 0.0

    @property
    def best(self) -> Any:
        """The plan's answer where it is proven right, else eager's."""
        return self.plan if self.verdict is Verdict.SAME else self.eager
