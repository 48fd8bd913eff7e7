"""Pairs: one call answered by eager and by the plan, one right after the other, in turns who is first.

In: seconds of both. Out: medians over the newest 200, and the reason to roll back where the plan is slower. Neighbours
on the machine slow both of a pair down, so the medians can be compared while the server is busy.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque

from compilot.serve.records import Pairs

WINDOW = 200  # pairs that a verdict needs, and as many are remembered
LOOK_EVERY = 20  # pairs from one look to the next
MARGIN = 0.05  # by so much the plan's median may be above eager's: 200 pairs of equals differ by 2 to 3 %
UNCOUNTED = 3  # the first ones: caches, pages and threads are new


class PairWindow:
    """The newest pairs of one plan."""

    def __init__(self, margin: float = MARGIN) -> None:
        self._margin = margin
        self.renew_locks()
        self._seen = 0
        self._rows: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def renew_locks(self) -> None:
        """For the start, and in a forked child: the thread that held one is not there any more."""
        self._lock = threading.Lock()

    def add(self, eager_s: float, plan_s: float) -> str | None:
        """One more; why the plan is to be rolled back, where that is due."""
        with self._lock:
            self._seen += 1
            if self._seen <= UNCOUNTED:
                return None
            self._rows.append((eager_s, plan_s))
            counted = self._seen - UNCOUNTED
            if counted < WINDOW or (counted - WINDOW) % LOOK_EVERY:
                return None
            rows = list(self._rows)
        eager, plan = (statistics.median(column) for column in zip(*rows, strict=True))
        if plan <= eager * (1 + self._margin):
            return None
        return f"slower than eager: p50 {plan * 1e3:.3g} ms against {eager * 1e3:.3g} ms over {len(rows)} pairs"

    def summary(self) -> Pairs:
        """Medians so far."""
        with self._lock:
            rows, seen = list(self._rows), self._seen
        if not rows:
            return Pairs(count=seen)
        eager, plan = (statistics.median(column) for column in zip(*rows, strict=True))
        return Pairs(count=seen, eager_p50_s=eager, plan_p50_s=plan)
