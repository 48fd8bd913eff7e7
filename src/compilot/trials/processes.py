"""A worker's process, seen from the parent. In: pipes, a log, an environment. Out: a process that can be waited for.

`fresh` starts a new interpreter; `nursery.py` forks one that has imported everything already. Both give the same.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Ends(NamedTuple):
    """The worker's ends of its pipes, and its log: file descriptors that stay the caller's to close."""

    requests: int
    replies: int
    log: int


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
        start_new_session=True,
        env=env,
    )
