"""Several callers at the same time: that they are, what is timed, and what happens when a call raises."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from compilot.measure import sampling
from compilot.measure.callers import Callers
from compilot.measure.stats import BATCH_TARGET_S, MAX_CALLS_PER_BATCH

LONG_S = 60.0  # a wait that only a mistake makes
Make = Callable[..., Callers]


@pytest.fixture
def callers() -> Iterator[Make]:
    """Callers whose threads are gone after the test."""
    made: list[Callers] = []

    def make(
        call: Callable[[], object], number: int, within: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Callers:
        before = set(threading.enumerate())
        made.append(Callers(lambda: void(call()), number, within))
        threads.update(set(threading.enumerate()) - before)
        return made[-1]

    threads: set[threading.Thread] = set()
    yield make
    for one in made:
        one.close()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()


def void(_: object) -> None: ...


def test_all_of_them_are_inside_the_call_at_the_same_time(callers: Make) -> None:
    """Each call waits for three others: with fewer callers nobody would ever come out."""
    meeting = threading.Barrier(4, timeout=LONG_S)
    four = callers(meeting.wait, 4)
    four.once()
    assert four.time_batch(12) > 0.0
    assert len(four.time_calls(8, LONG_S)) == 8


def test_fewer_callers_than_that_would_be_noticed(callers: Make) -> None:
    meeting = threading.Barrier(4, timeout=0.05)
    with pytest.raises(threading.BrokenBarrierError):
        callers(meeting.wait, 3).once()


def test_once_is_one_call_of_each_and_a_batch_is_exactly_its_calls(callers: Make) -> None:
    seen: list[int] = []
    some = callers(lambda: seen.append(threading.get_ident()), 4)
    some.once()
    assert len(set(seen)) == len(seen) == 4
    assert threading.get_ident() not in seen
    some.time_batch(10)
    assert len(seen) == 14


def test_a_sample_is_wall_time_over_all_calls(callers: Make) -> None:
    """From the first begin to the last end that the calls saw themselves, and little more."""
    spans: list[tuple[float, float]] = []

    def call() -> None:
        begin = time.perf_counter()
        time.sleep(0.005)
        spans.append((begin, time.perf_counter()))

    before = time.perf_counter()
    sample = callers(call, 3).time_batch(9)
    after = time.perf_counter()
    assert len(spans) == 9
    inside = max(end for _, end in spans) - min(begin for begin, _ in spans)
    assert inside <= 9 * sample <= after - before


def test_single_calls_are_as_their_caller_sees_them(callers: Make) -> None:
    samples = callers(lambda: time.sleep(0.002), 4).time_calls(20, LONG_S)
    assert len(samples) == 20
    assert min(samples) >= 0.002


def test_single_calls_end_at_the_limit(callers: Make) -> None:
    assert callers(lambda: None, 4).time_calls(20, 0.0) == ()


def test_what_a_call_raises_is_raised_and_the_next_batch_goes_on(callers: Make) -> None:
    trouble = [True]

    def call() -> None:
        if trouble:
            raise ValueError("not today")

    some = callers(call, 4)
    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            some.once()
    with pytest.raises(ValueError, match="not today"):
        some.time_batch(100)
    trouble.clear()
    assert some.time_batch(8) > 0.0


def test_a_caller_that_cannot_begin_says_why(callers: Make) -> None:
    @contextmanager
    def within() -> Iterator[None]:
        raise OSError("no room")
        yield

    some = callers(lambda: None, 4, within)
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            some.once()


def test_each_has_the_context_of_who_made_them_and_enters_its_own(callers: Make) -> None:
    known, local = contextvars.ContextVar("known", default="default"), threading.local()
    known.set("as set")
    seen: list[tuple[str, str]] = []

    @contextmanager
    def within() -> Iterator[None]:
        local.word = "entered"
        yield

    callers(lambda: seen.append((known.get(), local.word)), 3, within).once()
    assert seen == [("as set", "entered")] * 3


@pytest.mark.parametrize("per_call_s", [1e-7, 1e-5, 1e-3])
def test_a_batch_is_made_long_enough(callers: Make, monkeypatch: pytest.MonkeyPatch, per_call_s: float) -> None:
    some = callers(lambda: None, 4)
    monkeypatch.setattr(some, "time_batch", lambda calls: per_call_s)
    calls = some.calibrated(1)
    assert BATCH_TARGET_S <= calls * per_call_s <= 2 * BATCH_TARGET_S
    assert calls % 4 == 0


def test_a_batch_has_a_call_for_each_and_an_end(callers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    some = callers(lambda: None, 4)
    monkeypatch.setattr(some, "time_batch", lambda calls: 10.0)
    assert some.calibrated(1) == 4
    monkeypatch.setattr(some, "time_batch", lambda calls: 1e-12)
    assert some.calibrated(4) == MAX_CALLS_PER_BATCH // 4 * 4


@pytest.mark.measures
def test_four_callers_that_only_wait_take_as_long_as_one(callers: Make) -> None:
    def call() -> None:
        time.sleep(0.01)

    alone, together = sampling.time_batch(call, 8), callers(call, 4).time_batch(32)
    assert alone / together > 2.0  # 4 on a quiet machine
