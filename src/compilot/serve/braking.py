"""A building child's turns: while the server works, what the child has started runs for a part of the time only.

In: the child's process tree, now and then. Out: its busy processes, stopped and continued in turns.
The idle class gives way on the cores, but what a build reads and writes takes memory bandwidth and cache from every
request beside it: measured, a process of the idle class that only counts costs a server nothing, one that copies memory
half of its tail (bench/serving.py). Fewer requests are beside a build that pauses.
Covered: processes that end or are ended meanwhile; who does not compute is never stopped, so that the process that
cleans up after a killed server can. Not covered: processes younger than two looks, which run freely until then; other
processes of the same server: each looks at its own work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psutil

TURN_S = 0.1
QUIET = 0.05  # of one core: a server that uses less is not at work
AT_WORK = 0.05  # of one core, and of its share of the time: a process of the child's that uses less is not stopped
LEAST_SHARE = 0.05


class Brake:
    """For one child."""

    def __init__(self, share: float) -> None:
        self._share = max(share, LEAST_SHARE)
        self._busy: list[psutil.Process] = []
        self._used_s: dict[psutil.Process, float] = {}
        self._looked_s = time.monotonic()
        self._server_s = _server_s()
        self.is_on = False

    @property
    def runs_s(self) -> float:
        """Of one turn."""
        return TURN_S * self._share

    @property
    def pauses_s(self) -> float:
        """Of one turn."""
        return TURN_S - self.runs_s

    def look(self, tree: Iterable[psutil.Process]) -> None:
        """Who computes, and whether the server does."""
        now, server_s = time.monotonic(), _server_s()
        passed = max(now - self._looked_s, 1e-9)
        used = {process: _cpu_s(process) for process in tree}
        before, least_s = self._used_s, AT_WORK * self._share * passed
        self._busy = [one for one, seconds in used.items() if seconds - before.get(one, seconds) > least_s]
        self.is_on = self._share < 1.0 and server_s - self._server_s > QUIET * passed
        self._used_s, self._looked_s, self._server_s = used, now, server_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For the body."""
        stopped = []
        try:
            for process in self._busy:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
                    stopped.append(process)
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.Error):
                    process.resume()


def _server_s() -> float:
    """CPU seconds of this process without the thread that looks: listing a machine's processes takes a while."""
    return time.process_time() - time.thread_time()


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
