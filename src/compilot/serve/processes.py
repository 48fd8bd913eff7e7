"""The building child's process tree, looked at and signalled cheaply: a server's own thread does it beside requests.

In: a process id. Out: who is below it, and what each has used, from one small read per process; handles that signal
exactly that process and no later one with its number. Whatever Python does here keeps the interpreter from a request,
so it is kept to microseconds. Covered: processes that end meanwhile; systems without /proc or pidfd, by psutil.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from compilot.serve.summary import pss_bytes

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _START, _RSS = 11, 12, 19, 21  # of /proc/PID/stat, after the name


class Usage(NamedTuple):
    """What a process has used so far."""

    start: float  # when it began: another process may get its number later
    cpu_s: float
    rss_bytes: int


def usage(pid: int) -> Usage | None:
    """None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()
        cpu_s = (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS
        return Usage(float(fields[_START]), cpu_s, int(fields[_RSS]) * _PAGE)
    except ProcessLookupError:
        return None
    except (OSError, IndexError, ValueError):
        return _usage_by_psutil(pid)


def _usage_by_psutil(pid: int) -> Usage | None:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Usage(process.create_time(), times.user + times.system, process.memory_info().rss)
    return None


def usages(pids: Iterable[int]) -> dict[int, Usage]:
    """Of those that are there."""
    found = ((pid, usage(pid)) for pid in pids)
    return {pid: one for pid, one in found if one is not None}


def tree(pid: int) -> list[int]:
    """A process and everything below it, by the kernel's own lists: to read every process of a machine takes long."""
    lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
    if not lists:  # a kernel without them, or the process is gone
        with contextlib.suppress(psutil.Error):
            return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
        return []
    found = [pid]
    for file in lists:
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                found += tree(int(child))
    return found


def memory_bytes(pid: int) -> int:
    """Its part of memory: a forked worker has most pages in common with the process that it was forked from."""
    found = pss_bytes(pid)
    if found is not None:
        return found
    one = usage(pid)
    return 0 if one is None else one.rss_bytes


class Handle:
    """One process, whatever happens to its number."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError where it is gone."""
        self._pid = pid
        self._fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def send(self, number: int) -> bool:
        """Whether it was there to be told."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                os.kill(self._pid, number)
            else:
                signal.pidfd_send_signal(self._fd, number)
            return True
        return False

    def close(self) -> None:
        """Let go of it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
