"""torch's own timeline of a compile: begin and end of each phase. Checked on torch 2.13.0.

In: nothing. Out: `Mark` objects, in the order torch wrote them, while the context is open. Phases of other threads
(C++ compilers run from a pool) carry another thread number. The figures come from `chromium_event` lines of the
structured trace; the counters and `compile_times()` count nested phases twice, so they cannot be added up.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_LOGGER = "torch.__trace"


class Mark(NamedTuple):
    """A phase begins or ends."""

    name: str
    begins: bool
    at_s: float  # seconds since the epoch
    thread: int
    compile_id: str  # "0/0", "" outside of a compile


class _Tap(logging.Handler):
    def __init__(self, marks: list[Mark]) -> None:
        super().__init__()
        self._marks = marks

    def emit(self, record: logging.LogRecord) -> None:
        payload = getattr(record, "payload", None)
        if "chromium_event" not in getattr(record, "metadata", {}) or not payload:
            return
        event = json.loads(payload)
        if event.get("ph") in ("B", "E"):
            self._marks.append(_mark(event, record.thread or 0))


def _mark(event: dict[str, object], thread: int) -> Mark:
    args = event.get("args")
    known = args.get("compile_id") if isinstance(args, dict) else None
    number = "" if known in (None, "None") else str(known)
    return Mark(str(event["name"]), event["ph"] == "B", float(str(event["ts"])) / 1e6, thread, number)


@contextmanager
def timeline() -> Iterator[list[Mark]]:
    """Collect the marks of every compile meanwhile."""
    marks: list[Mark] = []
    logger = logging.getLogger(_LOGGER)
    tap = _Tap(marks)
    logger.addHandler(tap)
    try:
        yield marks
    finally:
        logger.removeHandler(tap)
