"""Ctrl-C while candidates are tried: the first one ends the trying, and the best so far is confirmed.

In: what a run does about it. Out: whether it happened. Covered: a second Ctrl-C, and one that comes too early for
anything to be confirmed, end the run as usual. Not covered: SIGTERM, which always ends the run; the confirmation, where
the first Ctrl-C is the last.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def ended_early(stop: Callable[[], bool], *, wanted: bool) -> Iterator[threading.Event]:
    """Meanwhile the first Ctrl-C calls stop; False from there, or another Ctrl-C, is KeyboardInterrupt as ever.

    wanted: whether all this is asked for. Only a process's main thread hears of signals.
    """
    ending = threading.Event()
    usual: Any = signal.getsignal(signal.SIGINT)
    if not wanted or threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield ending
        return

    def heard(signum: int, frame: FrameType | None) -> None:
        if ending.is_set() or not stop():
            usual(signum, frame)
        ending.set()

    signal.signal(signal.SIGINT, heard)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGINT, usual)
