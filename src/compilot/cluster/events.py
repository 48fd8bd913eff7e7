"""What happens on a node, for the driver's one view. In: a run's events there. Out: those since a number, when asked.

The driver asks and is answered when there is something new: nobody polls a machine that times something. Rounds of a
race are told at most once a second.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from compilot.progress import Observer
from compilot.records import Candidate

KEPT = 500
ROUNDS_S = 1.0


class Event(NamedTuple):
    """One of them."""

    number: int
    kind: str  # "doing", "note" or "racing"
    args: tuple[Any, ...]


class Events(Observer):
    """Keeps what happened until somebody asks."""

    def __init__(self) -> None:
        self._new = threading.Condition()
        self._kept: list[Event] = []
        self._count = 0
        self._label = ""
        self._rounds_at = 0.0

    def begin(self, candidate: Candidate) -> None:
        """From here on it is about this one."""
        self._label = candidate.label

    def stage(self, text: str) -> None:
        """A step of the run."""
        self._add("doing", text)

    def doing(self, text: str) -> None:
        """A step of a trial."""
        self._add("doing", f"{self._label}: {text}" if self._label else text)

    def note(self, text: str) -> None:
        """Something to know."""
        self._add("note", text)

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """Between two rounds."""
        now = time.monotonic()
        if done == 1 or now - self._rounds_at >= ROUNDS_S:
            self._rounds_at = now
            self._add("racing", purpose, labels, done, planned)

    def _add(self, kind: str, *args: Any) -> None:
        with self._new:
            self._count += 1
            self._kept = [*self._kept[-KEPT:], Event(self._count, kind, args)]
            self._new.notify_all()

    def since(self, number: int, wait_s: float) -> list[Event]:
        """Those after a number; waits until there is one."""
        with self._new:
            self._new.wait_for(lambda: self._count > number, timeout=wait_s)
            return [one for one in self._kept if one.number > number]
