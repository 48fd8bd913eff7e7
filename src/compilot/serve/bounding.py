"""Bounds of a building child, from both sides: what it does to itself, and what is done to those that it starts.

In: Bounds. Out: a process that takes what the server leaves. Covered: CPU (the scheduler's idle class, nice, one core
where there are several), I/O class, threads, the end of the server. The kernel takes the core from an idle task as soon
as another one wants it; a nice one may end its turn first, which is milliseconds of every request's parallel parts.
Both only count among processes of one autogroup, and every new session has one of its own: so the child stays in the
server's session, and its workers in the child's (trials/processes.py).
Not covered: cgroups (a server that has one of its own shares it with its child).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil

from compilot._cores import usable_cores
from compilot.serve.records import Bounds

ENVIRONMENT = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait leave the core
}
PR_SET_PDEATHSIG = 1  # linux/prctl.h
CGROUP = Path("/sys/fs/cgroup")


def bound_myself(bounds: Bounds, parent: int) -> None:
    """In the child, first of all: idle or nice, idle I/O, one core; it ends with the thread that started it."""
    die_with(parent)
    with contextlib.suppress(OSError):
        os.nice(bounds.nice)
    if bounds.idle and hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(psutil.Error, OSError, AttributeError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    if usable_cores() >= bounds.one_core_from and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def die_with(parent: int) -> None:
    """Have the kernel end this process when the thread ends that started it; the parent may be gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def free_bytes() -> int:
    """Memory that may still be used: the machine's, or what is left of this process's cgroup."""
    free = int(psutil.virtual_memory().available)
    limits = [left for left in (_left_v2(), _left_v1()) if left is not None]
    return min([free, *limits])


def _left_v2() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        inner = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        folder = CGROUP / inner.partition("::")[2].lstrip("/")
        return _left(folder, "memory.max", "memory.current", "inactive_file")
    return None


def _left_v1() -> int | None:
    return _left(CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(folder: Path, limit: str, used: str, cached: str) -> int | None:
    """None: there is no limit, or nobody says it. Files that the kernel may drop from memory at once do not count."""
    with contextlib.suppress(OSError, ValueError):
        taken = int((folder / used).read_text()) - _stat(folder / "memory.stat", cached)
        return max(0, int((folder / limit).read_text()) - max(0, taken))
    return None


def _stat(file: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(f"{name} ")), 0)
    return 0
