"""torch's own threads, where another engine's are about to work.

GNU's OpenMP lets its threads spin for some milliseconds after each loop, in case there is another one. An engine with
threads of its own that runs next has to share the cores with them: on two cores a program of twelve blocks, eleven of
them OpenVINO's and one in eager, took 20 ms instead of 14. In: nothing. Out: what ends the calling thread's idle ones;
torch makes new ones at its next loop. How many it uses stays as it was set. Not covered: other
OpenMP libraries, which are left alone; threads that belong to other threads of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SOFT = 1  # omp.h: omp_pause_soft keeps what was set


def ender() -> Callable[[], None] | None:
    """What ends the idle OpenMP threads of whoever calls it; None: there is no such library, or it cannot."""
    _pauses[:] = _found()
    return _end if _pauses else None


_pauses: list[Any] = []  # one for each copy of the library: other packages bring copies of their own


def _end() -> None:
    for pause in _pauses:
        pause(_SOFT)


def _in_a_fork() -> None:
    """The parent's threads are not there: waiting for them would never end."""
    _pauses.clear()


os.register_at_fork(after_in_child=_in_a_fork)


def _found() -> list[Any]:
    found = []
    for path in _loaded():
        with contextlib.suppress(OSError, AttributeError):
            found.append(ctypes.CDLL(path).omp_pause_resource_all)
    return found


def _loaded() -> list[str]:
    """GNU's OpenMP libraries in this process: torch brings one of its own."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = [line.split(maxsplit=5)[5] for line in lines if "libgomp" in line and line.count(" ") >= 5]
    return list(dict.fromkeys(paths))
