"""The two threads of a Swap: one that brings plans and lives as long as the server, one that ticks once a second.

In: sources to bring. Out: calls of the Swap's own methods. The first starts the children, which end with it; it tries
again, later and later, what did not work. The second sees that something is compared every second, and writes down what
the sentinel counted. Both hold no more than a weak reference while they wait. Not covered: what is brought
(bringing.py).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from compilot.errors import first_cause
from compilot.serve.keeping import KeptCall
from compilot.serve.records import Bounds
from compilot.serve.staying import SUPERSEDED, Closing, Later, Source, Stays

if TYPE_CHECKING:
    from compilot.serve.swap import Swap
    from compilot.serve.trial import Trial

TICK_S = 1.0
LONGEST_NAP_S = 0.2  # of the first thread, until it looks whether its Swap is still there

logger = logging.getLogger("compilot")


class Wanted(NamedTuple):
    """Something to bring."""

    source: Source = None
    more: KeptCall | None = None  # an example of calls that the live plan is to have besides
    under_way: Trial | None = None  # the live plan that it is added to
    generation: int = 0  # of the Swap, when it was wanted


class Manager:
    """The threads of one Swap."""

    def __init__(self, swap: Swap, stop: threading.Event, bounds: Bounds) -> None:
        self._swap = weakref.ref(swap, lambda _: stop.set())
        self._stop = stop
        self._bounds = bounds
        self._wanted: queue.Queue[Wanted] = queue.Queue()
        self._threads = [
            threading.Thread(target=_guarded(one), name=f"compilot-{name}", daemon=True)
            for name, one in (("bring", self._bring_all), ("tick", self._tick_all))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def want(self, wanted: Wanted) -> None:
        """Bring this, after what was wanted before."""
        self._wanted.put(wanted)

    def plans_wanted(self) -> bool:
        """Whether a whole plan waits for its turn."""
        with self._wanted.mutex:
            return any(one.more is None for one in self._wanted.queue)

    def forget(self) -> None:
        """Bring nothing of what waits for its turn."""
        with self._wanted.mutex:
            self._wanted.queue.clear()

    def join(self, timeout_s: float) -> None:
        """Wait for both threads to end; `stop` is set."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    # ---- bringing ------------------------------------------------------------------------------------------------

    def _bring_all(self) -> None:
        while not self._stop.is_set():
            if not self._may_bring():
                continue
            try:
                wanted = self._wanted.get(timeout=LONGEST_NAP_S)
            except queue.Empty:
                continue
            try:
                self._bring(wanted)
            except Closing:
                return

    def _may_bring(self) -> bool:
        """Whether the way is free, now or within a nap."""
        swap = self._swap()
        return swap is None or swap._standing.wait(swap._may_bring, LONGEST_NAP_S)

    def _bring(self, wanted: Wanted) -> None:
        """Once, or again and again while it may still work."""
        pause = self._bounds.retry_s
        for attempt in range(1, self._bounds.attempts + 1):
            swap = self._swap()
            if swap is None:
                raise Closing
            try:
                swap._bring_once(wanted)
            except Later as problem:
                last = attempt == self._bounds.attempts
                swap._postponed(str(problem), None if last else pause, wanted)
            except Stays as reason:
                return swap._stays(reason, wanted)
            except Closing:
                raise
            except Exception as error:
                logger.exception("a plan could not be brought")
                return swap._stays(Stays(f"compilot itself failed: {first_cause(error)}"), wanted)
            else:
                return None
            del swap
            self._pause(pause, wanted)
            if self.plans_wanted() and (swap := self._swap()) is not None:
                return swap._stays(Stays(SUPERSEDED), wanted)
            pause = min(2 * pause, self._bounds.longest_retry_s)
        return None

    def _pause(self, seconds: float, wanted: Wanted) -> None:
        """Until it is tried again, or nobody wants it any more."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stop.wait(min(left, LONGEST_NAP_S)):
                raise Closing
            swap = self._swap()
            if self.plans_wanted() or (swap is not None and not swap._is_wanted(wanted)):
                return

    # ---- ticking -------------------------------------------------------------------------------------------------

    def _tick_all(self) -> None:
        while not self._stop.wait(TICK_S):
            swap = self._swap()
            if swap is None:
                return
            try:
                swap._tick()
            except Exception as error:
                logger.warning("a tick of compilot.serve failed: %s", first_cause(error))
            del swap


def _guarded(body: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            body()
        except Exception:
            logger.exception("a thread of compilot.serve ended")

    return run
