"""Several plan entries behind one face: each call goes to the first entry whose guard takes it, else to eager.

In: one Dispatcher per entry, in the plan's order. Out: what fast.py needs of a core. The first entry's hot path costs
what it costs alone; a call of a later entry pays the failed guards before it. Not covered: how an entry answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from compilot._tree import Call
from compilot.errors import CompilotError
from compilot.runtime.dispatch import Dispatcher
from compilot.runtime.notices import Stats, added


class Chain:
    """Dispatchers in a row."""

    def __init__(self, links: Sequence[Dispatcher]) -> None:
        for number, (one, following) in enumerate(pairwise(links), 1):
            one.otherwise = following.call
            following.fast_before = _fast_calls_of(links[:number])
        self._links = links
        self.call = links[0].call

    def prepare(self, call: Call) -> None:
        """Build what this call needs now, in the entry that takes it."""
        taking = next((link for link in self._links if link.takes(call)), self._links[0])
        taking.prepare(call)

    def refresh(self) -> None:
        """Load every entry again; one that cannot be does not keep the others from it."""
        failed: list[CompilotError] = []
        for link in self._links:
            try:
                link.refresh()
            except CompilotError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    @property
    def frozen_weights(self) -> bool:
        """Whether weight values are baked in anywhere."""
        return any(link.frozen_weights for link in self._links)

    def forget_calls(self) -> None:
        """The calls so far were not the user's: leave them out of the statistics."""
        for link in self._links:
            link.forget_calls()

    def stats(self) -> Stats:
        """How the calls went, over all entries."""
        return added([link.stats() for link in self._links])


def _fast_calls_of(links: Sequence[Dispatcher]) -> Callable[[], int]:
    return lambda: sum(link.stats().fast for link in links)
