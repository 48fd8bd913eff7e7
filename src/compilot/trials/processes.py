"""A worker's process, seen from the parent. In: pipes, a log, an environment. Out: a process that can be waited for.

`fresh` starts a new interpreter; `nursery.py` forks one that has imported everything already. Both give the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypedDict


class Ends(NamedTuple):
    """The worker's ends of its pipes, and its log: file descriptors that stay the caller's to close."""

    requests: int
    replies: int
    log: int


class Apart(TypedDict, total=False):
    """Arguments of Popen."""

    process_group: int
    start_new_session: bool


class Process(Protocol):
    """What is needed of a process; `subprocess.Popen` is one. It leads a process group."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit code, -N for signal N; None: it lives."""

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended; subprocess.TimeoutExpired."""


Start = Callable[[Ends, Mapping[str, str]], Process]


def fresh(ends: Ends, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A new interpreter."""
    return subprocess.Popen(
        [sys.executable, "-m", "compilot.trials.worker", str(ends.requests), str(ends.replies)],
        stdin=subprocess.DEVNULL,
        stdout=ends.log,
        stderr=ends.log,
        pass_fds=(ends.requests, ends.replies),
        env=env,
        **apart(),
    )


def apart() -> Apart:
    """How to start a process that Ctrl-C does not reach: in a session of its own; in a group only, if this one yields.

    A process that is nice, or only takes idle time, yields to others of its autogroup alone, and a session has one of
    its own: there its workers would compete like any other program (Linux).
    """
    if os.nice(0) > 0 or (hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(0) == os.SCHED_IDLE):
        return {"process_group": 0}
    return {"start_new_session": True}
