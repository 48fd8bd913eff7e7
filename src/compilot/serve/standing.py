"""Where a Swap stands: its state, why, who waits for another one, and the events that tell of it.

In: changes. Out: events in their order, and whoever waited is woken up. Covered: several threads.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from compilot.runtime.counting import count_of
from compilot.serve.events import EventLog
from compilot.serve.records import EventKind, SwapEvent, SwapState

SETTLED = (SwapState.LIVE, SwapState.ROLLED_BACK, SwapState.CLOSED)
_names = itertools.count(1)


class Standing:
    """The state of one Swap."""

    def __init__(self, log: EventLog, numbers: itertools.count[int]) -> None:
        self._log = log
        self._numbers = numbers
        self._name = f"swap{next(_names)}-{os.urandom(4).hex()}"  # in a container every start has the same pid
        self.renew_locks()
        self.state = SwapState.EAGER
        self.reason = "nothing was brought yet"
        self.settled = False  # nothing is under way that could change the state by itself
        self.swaps: Counter[str] = Counter()

    def renew_locks(self) -> None:
        """For the start, and in a forked child: the thread that held one is not there any more."""
        self.changed = threading.Condition(threading.RLock())

    def become(
        self, state: SwapState, reason: str, *, plan: str = "", settled: bool | None = None, back: bool = False
    ) -> None:
        """Another state, or another reason for it; closed is the last one. back: a plan was taken back in any case."""
        with self.changed:
            if self.state is SwapState.CLOSED:
                return
            before, self.state, self.reason = self.state, state, reason
            self.settled = state in SETTLED if settled is None else settled
            if back:
                self.swaps[SwapState.ROLLED_BACK] += 1
            elif state in (SwapState.LIVE, SwapState.ROLLED_BACK) and state is not before:
                self.swaps[state] += 1
            self._tell(EventKind.STATE, before, reason=reason, plan=plan)
            self.changed.notify_all()

    def settle(self) -> None:
        """Nothing is under way any more."""
        with self.changed:
            self.settled = True
            self.changed.notify_all()

    def tell(self, kind: EventKind, reason: str = "", **more: Any) -> None:
        """An event that leaves the state as it is."""
        with self.changed:
            self._tell(kind, self.state, reason=reason, **more)

    def _tell(self, kind: EventKind, before: SwapState, **more: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        number = count_of(self._numbers)
        event = SwapEvent(
            at=at, pid=os.getpid(), swap=self._name, call=number, kind=kind, state=self.state, before=before, **more
        )
        self._log.tell(event)

    def wait(self, until: Callable[[], bool], timeout_s: float | None) -> bool:
        """Until this holds, or time is up; whether it holds."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self.changed:
            while not until():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.wait(left if left is None else min(left, 1.0))
        return True
