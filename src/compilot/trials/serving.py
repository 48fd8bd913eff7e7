"""Who answered: the candidate itself, or eager in its place?

In: the worker's callable and the guard it was built for. Out: a Miss for each call that the guard takes and the engine
did not serve; it says where only regions turned their own calls down. Calls outside of the guard are eager's by right:
they are none of the candidate's promises. Not covered: what a miss means for the trial (steps/trial.py) and for the
check (measure/correctness.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from compilot._tree import Call
from compilot.measure.correctness import Miss
from compilot.modules.selectors import blamed, cause, culprit
from compilot.records import Guard
from compilot.runtime.call_form import CallForm
from compilot.runtime.dispatch import NOT_TAKEN
from compilot.runtime.eager import KEPT_EAGER
from compilot.runtime.fast import Fast
from compilot.runtime.matching import Matcher, is_mismatch


class Answers(Protocol):
    """What a worker asks of whoever watches its callable."""

    def new(self) -> list[str]:
        """Why what was timed since the last look was not the candidate."""

    def compiles(self) -> int:
        """Programs built so far."""


class Serving:
    """Compares the counts of fallbacks from look to look."""

    def __init__(self, fn: Callable[..., Any], model: nn.Module, guard: Guard) -> None:
        self._fast = fn if isinstance(fn, Fast) else None  # eager itself falls back to nothing
        self._form = CallForm(model.forward, guard)
        self._matcher = Matcher(guard)
        self._seen = self._counts()

    def missed(self, call: Call) -> Miss | None:
        """Why eager answered this call, the only one since the last look; None: it did not, or had to."""
        new = self.new()
        if not new or not self.takes(call):
            return None
        refused = all(cause(reason).startswith(NOT_TAKEN) for reason in new)
        regions = [path for reason in new if (path := culprit(reason)) and is_mismatch(cause(reason))]
        alone = tuple(dict.fromkeys(regions)) if len(regions) == len(new) else ()
        return Miss("; ".join(new), refused=refused, regions=alone)

    def new(self) -> list[str]:
        """Reasons of the fallbacks since the last look."""
        before, self._seen = self._seen, self._counts()
        return [reason for reason, count in self._seen.items() if count > before.get(reason, 0)]

    def compiles(self) -> int:
        """Programs built so far."""
        return 0 if self._fast is None else self._fast.stats().compiles

    def takes(self, call: Call) -> bool:
        """Whether the guard is for this call."""
        wanted = self._form(call.args, call.kwargs)
        return wanted is not None and self._matcher.call_mismatch(wanted) is None

    def _counts(self) -> dict[str, int]:
        """Of the model, and of each region, whose path is said with the reason."""
        if self._fast is None:
            return {}
        stats = self._fast.stats()
        parts = {blamed(path, reason): n for path, one in stats.regions.items() for reason, n in one.fallbacks.items()}
        return {reason: n for reason, n in (stats.fallbacks | parts).items() if reason != KEPT_EAGER}  # eager is tried
