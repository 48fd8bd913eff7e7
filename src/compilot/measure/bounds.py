"""Memory and time that a bold case may take: an integer at the end of its type may become a size or a count.

In: seconds. Out: a context in which an allocation far beyond what is free fails, and in which Python code is
interrupted after that time; both raise inside the model, as any input does that eager does not accept. Covered:
Linux, the main thread. Elsewhere only what the system offers is bounded. Not covered: one operator that takes for
ever without allocating; none of torch's does.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import psutil

MEMORY_SHARE = 0.25  # of the free memory, beyond what the process has mapped already
SOON_S = 0.001
TIMES, SECONDS = 10.0, 5.0  # of the slowest ordinary case, and on top of it


@contextlib.contextmanager
def bounded(ordinary_s: float) -> Iterator[None]:
    """Run the body within bounds; ordinary_s: how long an ordinary call takes."""
    with _memory(), _time(TIMES * ordinary_s + SECONDS):
        yield


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    try:
        import resource
    except ImportError:  # a system without limits
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    room = psutil.Process().memory_info().vms + int(MEMORY_SHARE * psutil.virtual_memory().available)
    given = [limit for limit in (soft, hard, room) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(given), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _time(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {seconds:.0f} s")

    before, begin = signal.signal(signal.SIGALRM, stop), time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # somebody else's alarm comes when it would have come, or now if that was meanwhile
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), SOON_S), again)
