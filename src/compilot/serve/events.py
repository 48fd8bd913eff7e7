"""Events: what happened to a Swap, to a file, to a callback, and to whoever waits for a state.

In: events. Out: one JSON line each, appended whole (several processes may write to one file), and the callback, both in
order and in a thread of their own: whoever tells an event holds locks and must not wait for either. The thread ends
when there is nothing to do. A log that cannot be written never disturbs the server: it is said once, in Python's own
log. Not covered: what events mean (records.py).
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from compilot.records import encode
from compilot.serve.records import SwapEvent

LARGEST = 16 << 20  # then the file is begun anew, and one older one is kept
IDLE_S = 1.0  # then the thread ends; the next event starts another
KEPT = 200  # of the newest events, for the page

logger = logging.getLogger("compilot")
OnEvent = Callable[[SwapEvent], None]


class EventLog:
    """Where the events of a Swap go."""

    def __init__(self, path: Path | None, on_event: OnEvent | None) -> None:
        self.path = path
        self._on_event = on_event
        self._trouble = False
        self._torn = False  # the last line was not written whole
        self.newest: deque[SwapEvent] = deque(maxlen=KEPT)
        self.renew_locks()

    def renew_locks(self) -> None:
        """For the start, and in a forked child: what waits there is the parent's to write."""
        self._changed = threading.Condition()
        self._waiting: deque[SwapEvent] = deque()
        self._thread: threading.Thread | None = None

    def tell(self, event: SwapEvent) -> None:
        """Have it written down and passed on; nothing that goes wrong with that reaches the server's calls."""
        with self._changed:
            self.newest.append(event)
            self._waiting.append(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._pass_on_all, name="compilot-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is passed on; the callback itself does not wait."""
        with self._changed:
            if self._thread is not threading.current_thread():
                self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def _pass_on_all(self) -> None:
        changed, waiting = self._changed, self._waiting  # its own: a forked child has others
        while (event := self._first(changed, waiting)) is not None:
            self._pass_on(event)
            with changed:
                waiting.popleft()
                changed.notify_all()

    def _first(self, changed: threading.Condition, waiting: deque[SwapEvent]) -> SwapEvent | None:
        """The oldest event that waits; it does so until it is passed on. None: this thread has ended."""
        with changed:
            if changed.wait_for(lambda: bool(waiting), IDLE_S):
                return waiting[0]
            if self._waiting is waiting:
                self._thread = None
            return None

    def _pass_on(self, event: SwapEvent) -> None:
        self._write(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("on_event failed")

    def _write(self, event: SwapEvent) -> None:
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                line = b"\n" * self._torn + encode(event) + b"\n"
                self._torn = os.write(fd, line) < len(line)  # one write: lines of several processes do not mix
                large = os.fstat(fd).st_size > LARGEST
            finally:
                os.close(fd)
            if large:
                os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))
        except OSError as problem:
            if not self._trouble:
                logger.warning("events cannot be written to %s: %s", self.path, problem.strerror)
            self._trouble = True
