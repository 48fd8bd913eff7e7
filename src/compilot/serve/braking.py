"""A building child's turns: while the server works, what the child has started runs for a part of the time only.

In: what the child's processes have used, now and then. Out: the busy ones, stopped and continued in turns.
The idle class gives way on the cores, but what a build reads and writes takes memory bandwidth and cache from every
request beside it: measured, a process of the idle class that only counts costs a server nothing, one that copies memory
half of its tail (bench/serving.py). Fewer requests are beside a build that pauses.
Covered: processes that end or are ended meanwhile; who does not compute is never stopped, so that the process that
cleans up after a killed server can. Not covered: processes younger than a look, which run freely until then; other
processes of the same server: each looks at its own work.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from compilot.serve.processes import Handle, Usage

TURN_S = 0.2  # a request that a turn cuts into counts as one beside the build: few long turns cut into fewer
QUIET = 0.05  # of one core: a server that uses less is not at work
AT_WORK = 0.05  # of one core, and of its share of the time: a process of the child's that uses less is not stopped
START_S = 0.2  # CPU seconds; a small Python program takes less to start
LEAST_SHARE = 0.02


class Brake:
    """For one child."""

    def __init__(self, share: float) -> None:
        self._share = max(share, LEAST_SHARE)
        self._busy: dict[int, Handle] = {}
        self._used: Mapping[int, Usage] = {}
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

    def look(self, used: Mapping[int, Usage]) -> None:
        """Who computes, and whether the server does."""
        now, server_s = time.monotonic(), _server_s()
        passed = max(now - self._looked_s, 1e-9)
        busy = {pid for pid, one in used.items() if self._computed_s(pid, one) > AT_WORK * self._share * passed}
        self._hold(busy)
        self.is_on = self._share < 1.0 and server_s - self._server_s > QUIET * passed
        self._used, self._looked_s, self._server_s = used, now, server_s

    def _computed_s(self, pid: int, now: Usage) -> float:
        """Since the last look; of one that was not there then, what it used beyond a small program's start."""
        before = self._used.get(pid)
        return now.cpu_s - (START_S if before is None or before.start != now.start else before.cpu_s)

    def _hold(self, busy: set[int]) -> None:
        for pid in [pid for pid in self._busy if pid not in busy]:
            self._busy.pop(pid).close()
        for pid in busy - self._busy.keys():
            with contextlib.suppress(OSError):
                self._busy[pid] = Handle(pid)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For the body."""
        stopped = [one for one in self._busy.values() if one.send(signal.SIGSTOP)]
        try:
            yield
        finally:
            for one in stopped:
                one.send(signal.SIGCONT)

    def close(self) -> None:
        """Let go of all of them."""
        self._hold(set())


def _server_s() -> float:
    """CPU seconds of this process without the thread that looks."""
    return time.process_time() - time.thread_time()
