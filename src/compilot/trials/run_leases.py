"""The leases of one run: what it learns from waiting.

In: whom to tell; whether the run judges speed. Out: leases, and how long was waited for them. One wait in vain is
enough: a holder that is suspended costs a run one long wait and then short ones, until the lock was had again. What
was said once is not said again. Not covered: the locks (lease.py), what the time means for a budget (tuning/budget.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compilot.trials import lease

SHORT_WAIT_S = 5.0


class RunLeases:
    """Takes the host's lease again and again."""

    def __init__(self, tell: lease.Tell, *, judges_speed: bool = True) -> None:
        """judges_speed: without it nothing asks for the host alone; timing of others is kept out of all the same."""
        self.waited_s = 0.0  # so far
        self._wait_s = lease.WAIT_S
        self._judges_speed = judges_speed
        self._say = tell
        self._said: set[str] = set()

    @contextmanager
    def timing(self) -> Iterator[lease.Holding]:
        """For the body."""
        enter = lease.timing if self._judges_speed else lease.building
        with enter(self._tell, self._wait_s) as holding:
            self._learn(holding)
            yield holding

    @contextmanager
    def building(self) -> Iterator[lease.Holding]:
        """For the body."""
        with lease.building(self._tell, self._wait_s) as holding:
            self._learn(holding)
            yield holding

    def _learn(self, holding: lease.Holding) -> None:
        self.waited_s += holding.waited_s
        self._wait_s = lease.WAIT_S if holding.held else SHORT_WAIT_S

    def _tell(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
