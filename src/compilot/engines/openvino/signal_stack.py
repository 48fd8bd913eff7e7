"""The calling thread's stack for signals, as it was before OpenVINO's CPU plugin was asked anything.

In: work that may load the plugin. Out: the same work, and the stack of before. The plugin gives the thread that loads
it a stack of its own and frees it with its last object; when two of them go in the order in which they came, the
thread is left with one that is no longer there, and the next signal that Python handles (Ctrl-C, SIGTERM, an alarm)
ends the process by SIGSEGV (seen with 2026.4.1). Where there is no `sigaltstack`, nothing is done.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


class _Stack(ctypes.Structure):
    """stack_t of signal.h."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Put the stack for signals back when the work is done."""
    change = getattr(ctypes.CDLL(None), "sigaltstack", None)
    before = _Stack()
    if change is None or change(None, ctypes.byref(before)) != 0:
        yield
        return
    try:
        yield
    finally:
        change(ctypes.byref(before), None)
