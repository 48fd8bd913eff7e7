"""Which timed figures can be trusted. In: samples of the same work. Out: one figure, or None where there is none.

A figure that may be twice the truth is left out. Two signs of that: the samples of the same work differ by more than a
factor of two in their middle half, or this process waited for a core longer than it had one, because other programs
held the cores. The second is read from Linux's own account of each thread; where there is none, only the first counts.
For one long piece of work in several processes, a compile, it is how much of the cores other programs took.
Not covered: other programs that take memory bandwidth but no core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from compilot._cores import usable_cores

if TYPE_CHECKING:
    import psutil

TWICE = 2.0  # how far a figure may be from the truth before it is left out
LEFT_OUT = (
    "other programs used the cores, or the same call took very different times: times that cannot be trusted are left "
    "out; run 'compilot doctor' again on a quieter machine"
)
NEVER_WARM = (
    "every call of the first example made torch.compile trace something again, so the cost of graph breaks could not "
    "be measured"
)
_THREADS = Path("/proc/self/task")
_Result = TypeVar("_Result")


class Untrusted(Exception):
    """A part of the report whose times cannot be trusted; its text says why."""


def typical(samples: Sequence[float]) -> float | None:
    """The median; None where the middle half of the samples differs too much, or there are no samples."""
    ordered = sorted(samples)
    cut = len(ordered) // 4
    if not ordered or ordered[-1 - cut] > TWICE * ordered[cut]:
        return None
    return median(ordered)


def quickest(samples: Sequence[float]) -> float | None:
    """The shortest sample, which noise disturbed least; None where the quickest quarter is not like it."""
    ordered = sorted(samples)
    if not ordered or ordered[len(ordered) // 4] > TWICE * ordered[0]:
        return None
    return ordered[0]


class Cores:
    """Watches whether this process gets the cores that its threads ask for."""

    def __init__(self) -> None:
        self._begin = _ran_and_waited()

    def starved(self) -> bool:
        """True where its threads waited for a core longer than they had one: everything took twice as long."""
        if _crowds_itself():
            return False
        ran, waited = (now - then for now, then in zip(_ran_and_waited(), self._begin, strict=True))
        return waited > max(ran, 0) * (TWICE - 1)


class Others:
    """Watches how much of the cores other programs take; for work in child processes, such as compilers."""

    def __init__(self) -> None:
        self._begin = _wall_busy_and_ours()

    def crowd(self) -> bool:
        """True where others had so many of the cores that the work may have taken twice as long."""
        wall, busy, ours = (now - then for now, then in zip(_wall_busy_and_ours(), self._begin, strict=True))
        return busy - ours > wall * usable_cores() * (1 - 1 / TWICE)


class Stopwatch:
    """Times the same work several times."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._starved: list[bool] = []

    def lap(self, work: Callable[[], _Result]) -> _Result:
        """Do the work once; its time is a sample."""
        cores = Cores()
        begin = time.perf_counter()
        result = work()
        self.samples.append(time.perf_counter() - begin)
        self._starved.append(cores.starved())
        return result

    @property
    def starved(self) -> bool:
        """True where most of the samples had to wait for the cores; a single one does not move the median."""
        return 2 * sum(self._starved) > len(self._starved)

    def typical(self) -> float | None:
        """The median of the samples, where it can be trusted."""
        return None if self.starved else typical(self.samples)

    def quickest(self) -> float | None:
        """The shortest sample, where it can be trusted."""
        return None if self.starved else quickest(self.samples)


def _wall_busy_and_ours() -> tuple[float, float, float]:
    """Seconds: the clock, all work on the cores that this process may use, and what it and its children did of it."""
    import psutil

    own = psutil.Process()
    usable = set(own.cpu_affinity()) if hasattr(own, "cpu_affinity") else set()
    cores = [times for core, times in enumerate(psutil.cpu_times(percpu=True)) if not usable or core in usable]
    busy = sum(one.user + one.nice + one.system for one in cores)
    return time.monotonic(), busy, sum(map(_spent_s, [own, *own.children(recursive=True)]))


def _spent_s(process: psutil.Process) -> float:
    """Of a process and those of its children that have ended."""
    import psutil

    try:
        times = process.cpu_times()
    except psutil.Error:  # it ended just now; its parent has its time
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _crowds_itself() -> bool:
    """More threads than cores wait for one another; that is how this program runs, with or without others."""
    import torch

    return torch.get_num_threads() > usable_cores()


def _ran_and_waited() -> tuple[int, int]:
    """Nanoseconds that the threads of this process had a core, and that they waited for one; zeros where unknown."""
    ran = waited = 0
    for thread in _THREADS.glob("*/schedstat"):
        try:
            fields = thread.read_text().split()
            ran, waited = ran + int(fields[0]), waited + int(fields[1])
        except (OSError, ValueError, IndexError):  # it ended just now
            continue
    return ran, waited
