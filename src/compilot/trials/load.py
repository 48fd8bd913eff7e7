"""Was the machine quiet? In: CPU times of the machine and of its processes. Out: who else used it, as data or in words.

Two readers: `LoadLook` looks at the machine for a second while a run starts (`MachineLoad`), `LoadWatch` beside a race
(words; "" when it was quiet). Covered: our own processes and our parents do not count; processes that may not be seen
(another container, another user) count where the machine's own figures show them; machines that know no steal time.
Not covered: what is too much (verdict/busy.py), limits of a container that are no set of cores.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from compilot._cores import usable_cores
from compilot.records import BusyProcess, MachineLoad
from compilot.verdict.busy import BUSY_SHARE, STEAL_SHARE

HALF_S = 0.5  # a look is two of these: who is busy in both halves goes on being busy, a passing job does not
NAMED = 3  # processes; who has more of them knows
WORTH_NAMING = 0.05  # of one core

# -------------------------------------------------------------------------------------------------- before a run


class Seen(NamedTuple):
    """One process that is neither ours nor a parent of ours."""

    name: str
    cpu_s: float


class Reading(NamedTuple):
    """CPU seconds so far."""

    at_s: float
    busy_s: float  # of the cores that we may use, all processes; does not move where the machine does not say
    steal_s: float  # of those cores
    ours_s: float  # of this process, its children and its parents
    others: Mapping[tuple[int, float], Seen]  # by pid and start, as far as they may be seen
    all_cores: bool = True  # whether we may use all of them: else nobody knows whose cores the others use


class LoadLook:
    """Looks at the machine for a second in a thread of its own, while the caller does something else."""

    def __init__(self, read: Callable[[], Reading] | None = None, half_s: float = HALF_S) -> None:
        self._read = read or read_machine
        self._half_s = half_s
        self._readings: list[Reading] = []
        self._thread = threading.Thread(target=self._look, name="compilot-load", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error, OSError):  # a machine that does not say is not busy as far as we know
            for pause_s in (0.0, self._half_s, self._half_s):
                time.sleep(pause_s)
                self._readings.append(self._read())

    def result(self) -> MachineLoad | None:
        """What was seen; waits for the rest of the second. None: the machine does not say."""
        self._thread.join()
        return machine_load(self._readings) if len(self._readings) == 3 else None


def machine_load(readings: Sequence[Reading]) -> MachineLoad:
    """What was there all the time: of each half of the look the lesser."""
    halves = list(itertools.pairwise(readings))
    first, last = readings[0], readings[-1]
    return MachineLoad(
        others=min(_others(a, b) for a, b in halves),
        steal=min(_share(b.steal_s - a.steal_s, a, b) for a, b in halves),
        cores=usable_cores(),
        processes=tuple(_busiest(first, last)),
    )


def _others(a: Reading, b: Reading) -> float:
    """Cores that others used: what the machine counts beside us, and what can be seen of them, whichever is more."""
    beside_us = _share((b.busy_s - a.busy_s) - (b.ours_s - a.ours_s), a, b)
    if not a.all_cores and b.busy_s > a.busy_s:
        return beside_us
    return max(beside_us, sum(one.share for one in _shares(a, b)))


def _shares(a: Reading, b: Reading) -> list[BusyProcess]:
    """Of each process that can be seen; one that began meanwhile counts from zero."""
    found = []
    for key, one in b.others.items():
        before = a.others[key].cpu_s if key in a.others else 0.0
        found.append(BusyProcess(name=one.name, pid=key[0], share=_share(one.cpu_s - before, a, b)))
    return found


def _busiest(a: Reading, b: Reading) -> list[BusyProcess]:
    worth = [one for one in _shares(a, b) if one.share >= WORTH_NAMING] if b.all_cores else []
    return sorted(worth, key=lambda one: -one.share)[:NAMED]


def _share(cpu_s: float, a: Reading, b: Reading) -> float:
    return max(0.0, cpu_s) / (b.at_s - a.at_s) if b.at_s > a.at_s else 0.0


def read_machine() -> Reading:
    """One look at /proc, or what there is in its place."""
    per_core = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(len(per_core)))
    cores = [one for number, one in enumerate(per_core) if number in mine]
    infos = {p.pid: p.info for p in psutil.process_iter(["pid", "ppid", "name", "cpu_times", "create_time"])}
    children, parents = own_family(os.getpid(), {pid: info["ppid"] for pid, info in infos.items()})
    known = {pid: info for pid, info in infos.items() if info["cpu_times"] is not None}
    ours = {pid: info["cpu_times"] for pid, info in known.items() if pid in children | parents}
    return Reading(
        at_s=time.monotonic(),
        busy_s=sum(one.user + getattr(one, "nice", 0.0) + one.system for one in cores),
        steal_s=sum(getattr(one, "steal", 0.0) for one in cores),
        ours_s=sum(_cpu_s(times, ended=pid in children) for pid, times in ours.items()),
        others={
            (pid, info["create_time"] or 0.0): Seen(info["name"] or "?", _cpu_s(info["cpu_times"]))
            for pid, info in known.items()
            if pid not in ours
        },
        all_cores=len(mine) >= len(per_core),
    )


def own_family(pid: int, parent_of: Mapping[int, int | None]) -> tuple[set[int], set[int]]:
    """This process with all below it, and all above it: a shell, a notebook's server, a terminal that draws for us."""
    parents: set[int] = set()
    above = parent_of.get(pid)
    while above and above not in parents:
        parents.add(above)
        above = parent_of.get(above)
    children, found = {pid}, True
    while found:
        found = False
        for one, parent in parent_of.items():
            if parent in children and one not in children:
                children.add(one)
                found = True
    return children, parents - children


def _cpu_s(times: Any, *, ended: bool = False) -> float:
    """Of a process; ended: with its children that are gone (they did their work for us)."""
    own = float(times.user + times.system)
    return own + float(times.children_user + times.children_system) if ended else own


# ------------------------------------------------------------------------------------------------- during a race


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
        odd.append(f"other processes used {100 * others_s / wall_s:.0f} % of a core")
    if steal_s / wall_s > STEAL_SHARE:
        odd.append(f"the hypervisor took {100 * steal_s / wall_s:.0f} % of a core")
    return "; ".join(odd)
