"""Who answers calls now. The swap is one assignment of one of these; calls under way finish on the one they have.

In: a state, who looks at calls, and, where a plan is live, what answers the others. Out: what `Swap.__call__` reads.
Covered: which calls are looked at, by their number alone, so that a run can be repeated; and at least one a second,
where somebody says that it is due. Not covered: what a look does (swap.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compilot.errors import InputError
from compilot.serve.records import SwapState

if TYPE_CHECKING:
    from compilot.serve.trial import Trial

Look = Callable[["Route", int, tuple[Any, ...], dict[str, Any]], Any]


class Route:
    """One way that calls go."""

    __slots__ = ("base", "base_due", "due", "every", "hot", "look", "period", "state", "threads", "trial")

    def __init__(
        self,
        state: SwapState,
        look: Look,
        *,
        period: int = 1,
        trial: Trial | None = None,
        base: Trial | None = None,
        hot: Callable[..., Any] | None = None,
        threads: frozenset[int] = frozenset(),
    ) -> None:
        """period: one call in so many is asked of the plan. hot: answers all others by itself; None: look at all.

        base: the plan that answers while this one is tried; None: eager. threads: at which `hot` is proven.
        """
        self.state = state
        self.look = look
        self.period = period
        self.trial = trial
        self.base = base
        self.hot = hot
        self.threads = threads
        self.due = False  # a comparison
        self.base_due = False  # one of the base
        self.every = period if hot is not None else 1

    def make_due(self) -> None:
        """The next call is looked at and compared."""
        self.due = True
        self.every = 1

    def wants(self, number: int) -> bool:
        """Whether this call's turn has come."""
        return self.due or not number % self.period

    def compared(self) -> None:
        """A call was."""
        self.due = False
        if self.hot is not None:
            self.every = self.period


def period_of(share: float, name: str) -> int:
    """One call in so many; the share is not exceeded."""
    if not 0.0 < share <= 1.0:
        raise InputError(f"{name} is a share of the calls: above 0 and at most 1, not {share!r}.")
    return math.ceil(1.0 / share - 1e-9)
