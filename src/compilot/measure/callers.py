"""Several callers at the same time, as a server has them. In: one call. Out: wall seconds per call over all of them.

The callers are threads that are made once; a barrier starts each batch, and the clock runs from the first caller's
first call to the last one's end, so that waking and waiting are outside of it. A batch is shared: whoever is free makes
the next call, so that all are busy until its end. Covered: errors of a call, the state that torch keeps per thread
(`within` sets it), single calls as their caller sees them. Not covered: warm-up and one caller (sampling.py).
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress

from compilot._collector import no_collector
from compilot.measure.stats import BATCH_TARGET_S, MAX_CALLS_PER_BATCH

CALIBRATIONS = 6  # looks at a batch's time; each makes it as long as the last one says it must be
RATHER_LONGER = 1.3  # times the calls that seem to be needed

Job = Callable[[], list[float]]  # what one caller does in a batch; what it gives are its own samples


class Callers:
    """So many threads that make the same call."""

    def __init__(
        self,
        call: Callable[[], None],
        number: int,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """within: entered by each caller for its life, for what a thread does not have from the one that made it."""
        self.number = number
        self._call = call
        self._within = within
        self._job: Job | None = None
        self._done: list[tuple[float, float, list[float]]] = []  # begin, end and samples of each caller
        self._errors: list[BaseException] = []
        self._start = threading.Barrier(number + 1)
        self._end = threading.Barrier(number + 1)
        for _ in range(number):
            context = contextvars.copy_context()  # torch's configuration is in it; one each, as none can be shared
            threading.Thread(target=context.run, args=(self._serve,), daemon=True).start()

    def once(self) -> None:
        """Everyone makes one call."""
        self._together(lambda: self._make(range(1)))

    def time_batch(self, calls: int) -> float:
        """Wall seconds per call over a batch of so many calls."""
        shared = iter(range(calls))
        self._together(lambda: self._make(shared))
        return (max(end for _, end, _ in self._done) - min(begin for begin, _, _ in self._done)) / calls

    def time_calls(self, calls: int, limit_s: float) -> tuple[float, ...]:
        """Single calls as their caller sees them while the others call, too; fewer when the limit ends them."""
        shared, limit = iter(range(calls)), time.perf_counter() + limit_s
        with no_collector():
            self._together(lambda: self._time_each(shared, limit))
        return tuple(sample for _, _, samples in self._done for sample in samples)

    def calibrated(self, rounds: int) -> int:
        """Calls that together last as long as a batch must, beginning with a guess of how many each would make."""
        most = MAX_CALLS_PER_BATCH // self.number
        for _ in range(CALIBRATIONS):
            calls = rounds * self.number
            wall_s = self.time_batch(calls) * calls
            if wall_s >= BATCH_TARGET_S or rounds >= most:
                break
            rounds = min(most, max(2 * rounds, math.ceil(rounds * RATHER_LONGER * BATCH_TARGET_S / wall_s)))
        return rounds * self.number

    def close(self) -> None:
        """Let the threads end."""
        self._job = None
        with suppress(threading.BrokenBarrierError):  # they ended before
            self._start.wait()

    # ------------------------------------------------------------------------------------------------ the callers

    def _together(self, job: Job) -> None:
        """Everyone does the job at the same time; what one of them raised is raised here."""
        self._job, self._done = job, []
        if not self._start.broken:
            self._errors.clear()
        with suppress(threading.BrokenBarrierError):  # a caller could not even begin; its error says why
            self._start.wait()
            self._end.wait()
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        """The life of one caller."""
        try:
            with self._within():
                while self._do_next():
                    pass
        except BaseException as error:
            self._errors.append(error)
            self._start.abort()

    def _do_next(self) -> bool:
        self._start.wait()
        if self._job is None:
            return False
        samples, begin = list[float](), time.perf_counter()
        try:
            samples = self._job()
        except BaseException as error:  # of the model; whatever it is, the others must not wait for ever
            self._errors.append(error)
        self._done.append((begin, time.perf_counter(), samples))
        self._end.wait()
        return True

    def _make(self, turns: Iterable[int]) -> list[float]:
        call = self._call
        for _ in turns:
            call()
        return []

    def _time_each(self, turns: Iterator[int], limit: float) -> list[float]:
        samples = []
        for _ in turns:
            begin = time.perf_counter()
            if begin >= limit:
                break
            self._call()
            samples.append(time.perf_counter() - begin)
        return samples
