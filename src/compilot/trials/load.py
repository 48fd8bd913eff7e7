"""Was the machine quiet? In: CPU times before and after a race. Out: what was odd, in words; "" when it was quiet."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

import psutil

BUSY_SHARE = 0.25  # of one core used by others: from here on pairs are visibly disturbed
STEAL_SHARE = 0.05  # of one core taken by the hypervisor


class LoadWatch:
    """Compares the machine's CPU use with that of our own processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = [*pids, os.getpid()]
        self._begin = self._read()

    def _read(self) -> tuple[float, float, float, float]:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system
        mine = 0.0
        for pid in self._pids:
            with contextlib.suppress(psutil.Error):
                own = psutil.Process(pid).cpu_times()
                mine += own.user + own.system
        return time.monotonic(), busy, getattr(times, "steal", 0.0), mine

    def odd(self) -> str:
        """What was odd since the watch began."""
        wall, busy, steal, mine = (b - a for a, b in zip(self._begin, self._read(), strict=True))
        return describe(wall, busy - mine, steal)


def describe(wall_s: float, others_s: float, steal_s: float) -> str:
    """Words for the CPU seconds that others and the hypervisor took; "" when that was little."""
    if wall_s <= 0:
        return ""
    odd = []
    if others_s / wall_s > BUSY_SHARE:
        odd.append(f"other processes used {others_s / wall_s:.0%} of a core")
    if steal_s / wall_s > STEAL_SHARE:
        odd.append(f"the hypervisor took {steal_s / wall_s:.0%} of a core")
    return "; ".join(odd)
