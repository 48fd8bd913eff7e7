"""Threads that call a Swap as a server's do, and look at every answer; what one injected fault came to.

In: a model, a source, options of Swap. Out: a Load (answers, wrong ones, failed ones, the events so far) and, of one
run of a case, a Run with what was missed. Every answer is compared with eager's own, which is known beforehand.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compilot.records import Record
from compilot.serve import Bounds, Swap, SwapEvent
from compilot.serve.records import EventKind

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "data")]
from swapping import NAME, Faulty, plan_of, registered  # noqa: E402  # the engine of the tests

__all__ = ["NAME", "Faulty", "Load", "Missed", "Run", "inputs", "judged", "net", "own_cache", "plan_of", "registered"]
THREADS = 8
INPUTS = 16
PAUSE_S = 0.001  # of a thread between two calls
LIMIT_S = 240.0  # for what takes seconds on an idle machine
CLOSE = 1e-4
ON = 200  # right answers after an event: the service goes on
AT_ONCE = Bounds(nice=0, idle=False, share=1.0, one_core_from=99, retry_s=0.05, longest_retry_s=0.1, least_free_bytes=0)


class Run(Record, frozen=True, kw_only=True):
    """One injected fault."""

    missed: tuple[str, ...]  # what did not hold; (): all did
    answers: int
    wrong: int
    failed: int  # calls that raised
    reason: str = ""  # of the event that names the fault
    note: str = ""


class Missed(Exception):
    """Something that was waited for did not come."""


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> Any:
        """Scores."""
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def net(seed: int = 0, width: int = 8) -> Net:
    """The same for the same seed, in every process."""
    torch.manual_seed(seed)
    return Net(width).eval()


def inputs(rows: int = 1, side: int = 16) -> list[torch.Tensor]:
    """What users send."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, 3, side, side, generator=generator) for _ in range(INPUTS)]


class Load:
    """A Swap under load."""

    def __init__(
        self,
        model: nn.Module,
        source: Any,
        folder: Path,
        *,
        threads: int = THREADS,
        pause_s: float = PAUSE_S,
        **options: Any,
    ) -> None:
        self.model = model
        self.events: list[SwapEvent] = []
        self.answers = self.wrong = self.failed = 0
        self.errors: list[str] = []
        self._pause_s = pause_s
        self._xs = inputs()
        with torch.inference_mode():
            self._right = [model(x).clone() for x in self._xs]
        self._lock, self._end = threading.Lock(), threading.Event()
        usual = {"on_event": self.events.append, "bounds": AT_ONCE, "log": folder / "events.jsonl"}
        self.swap = Swap(model, source, **{**usual, **options})
        self._threads = [threading.Thread(target=self._ask_all, args=(n,), daemon=True) for n in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        self.failed += sum(thread.is_alive() for thread in self._threads)  # an answer that never came
        self.swap.close()

    def _ask_all(self, number: int) -> None:
        with torch.inference_mode():
            while not self._end.is_set():
                self._ask(number % INPUTS)
                number += 1
                time.sleep(self._pause_s)

    def _ask(self, which: int) -> None:
        try:
            answer = self.swap(self._xs[which])
            right = torch.allclose(answer, self._right[which], atol=CLOSE)
        except Exception as error:
            with self._lock:
                self.failed += 1
                self.errors.append(repr(error)[:200])
            return
        with self._lock:
            self.answers += 1
            self.wrong += not right

    def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait while the threads call; Missed where it does not come."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            if time.monotonic() > end:
                raise Missed(f"{what}; it is {self.swap.state}: {self.swap.reason}")
            time.sleep(0.002)

    def until_event(self, words: str, *, after: int = 0, kind: EventKind | None = None) -> SwapEvent:
        """The first event that says this."""
        found: list[SwapEvent] = []

        def there() -> bool:
            found[:] = [
                event for event in self.events[after:] if words in event.reason and (kind is None or event.kind is kind)
            ]
            return bool(found)

        self.until(there, f"no event says '{words}'")
        return found[0]

    def goes_on(self) -> None:
        """So many more answers."""
        goal = self.answers + ON
        self.until(lambda: self.answers >= goal, "the service does not go on")


def judged(load: Load, body: Callable[[Load], SwapEvent | None], *, most_wrong: int = 0) -> Run:
    """One run of a case: its own body, then what must hold in every case."""
    missed, reason = [], ""
    try:
        with load:
            event = body(load)
            reason = event.reason if event is not None else ""
            load.goes_on()
    except Missed as problem:
        missed.append(str(problem))
    if load.wrong > most_wrong:
        missed.append(f"{load.wrong} wrong answers")
    if load.failed:
        missed.append(f"{load.failed} failed calls: {load.errors[:1]}")
    return Run(missed=tuple(missed), answers=load.answers, wrong=load.wrong, failed=load.failed, reason=reason)


@contextlib.contextmanager
def own_cache() -> Iterator[Path]:
    """A folder for one run, with an empty cache in it."""
    before = os.environ.get("COMPILOT_CACHE")
    with tempfile.TemporaryDirectory(prefix="serving-faults-", ignore_cleanup_errors=True) as folder:
        os.environ["COMPILOT_CACHE"] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["COMPILOT_CACHE"]
            else:
                os.environ["COMPILOT_CACHE"] = before
