"""Ends what a run's workers started, when the run itself no longer can.

In: a mark that every worker carries in its environment and hands on to all it starts; the workers' process groups. Out:
none of these processes is left. Run as `python marks.py FD MARK` it waits beside a run (keeper.py starts it): lines
"+PID" and "-PID" on the pipe tell of workers that began and ended, and the end of the pipe, by an exit or by SIGKILL,
is the end of the run. Standard library only, and little of it: the process waits for the whole run.
Covered: programs that left the worker's process group or session, and those whose parent is dead. Not covered: a
program that left both the group and the environment; on systems without /proc, whatever left the group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK = "COMPILOT_WORKER"  # the variable
LOOKS = 50  # a program that starts others without end is not waited for longer than this,
LOOK_S = 0.01  # times this
QUIET_LOOKS = 3  # in a row that must find nothing: in the middle of its start a program shows no environment


def marked(value: str) -> list[int]:
    """Living processes whose mark begins so."""
    begin = f"{MARK}={value}".encode()
    names = os.listdir("/proc") if os.path.isdir("/proc") else []
    return [int(name) for name in names if name.isdigit() and _has(int(name), begin)]


def _has(pid: int, begin: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(one.startswith(begin) for one in file.read().split(b"\0"))
    except OSError:  # gone, a zombie, or another user's
        return False


def end_marked(value: str) -> None:
    """End them, and what they start meanwhile."""
    quiet = 0
    for _ in range(LOOKS):
        found = [pid for pid in marked(value) if pid != os.getpid()]
        quiet = 0 if found else quiet + 1
        if quiet == QUIET_LOOKS:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def end_groups(groups: set[int]) -> None:
    """End these process groups."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def main(argv: list[str]) -> None:
    """Wait for the end of the pipe, then end everything."""
    fd, value = int(argv[0]), argv[1]
    groups: set[int] = set()
    rest = b""
    while data := os.read(fd, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    end_groups(groups)
    end_marked(value)


if __name__ == "__main__":
    main(sys.argv[1:])
