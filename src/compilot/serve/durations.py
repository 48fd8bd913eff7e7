"""How long the calls took that were looked at: all until the plan is live, then those that are compared.

In: seconds by path ("eager", "fast"). Out: quantiles over the newest; a listener (metrics.py) hears of each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NEWEST = 512  # for quantiles


class Durations:
    """Seconds of calls, by path."""

    def __init__(self) -> None:
        self.renew_locks()
        self._newest: dict[str, deque[float]] = {}
        self.listener: Callable[[str, float], None] | None = None  # hears of each one

    def renew_locks(self) -> None:
        """For the start, and in a forked child: the thread that held one is not there any more."""
        self._lock = threading.Lock()

    def add(self, path: str, seconds: float) -> None:
        """One call."""
        with self._lock:
            self._newest.setdefault(path, deque(maxlen=NEWEST)).append(seconds)
        if self.listener is not None:
            self.listener(path, seconds)

    def quantile(self, path: str, share: float) -> float | None:
        """Over the newest calls; None: there are none."""
        with self._lock:
            rows = sorted(self._newest.get(path, ()))
        return rows[min(len(rows) - 1, int(share * len(rows)))] if rows else None
