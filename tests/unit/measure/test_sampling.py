"""Warm-up and batches with a fake clock: the durations are the test's own."""

from collections.abc import Callable, Iterator

import pytest

from compilot.measure import sampling


class FakeClock:
    """A clock that only moves when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(sampling.time, "perf_counter", fake)
    return fake


def work(clock: FakeClock, durations: Iterator[float]) -> Callable[[], None]:
    def call() -> None:
        clock.now += next(durations)

    return call


def forever(value: float) -> Iterator[float]:
    while True:
        yield value


def none_compiled() -> int:
    return 0


def test_a_steady_callable_is_warm_after_a_second(clock: FakeClock):
    result = sampling.warm_up(work(clock, forever(0.010)), none_compiled, limit_s=60)
    assert result.warm_up.steady
    assert result.warm_up.wall_s >= 1.0
    assert result.call_s == pytest.approx(0.010)
    assert result.calls_per_batch == 2


def test_a_callable_that_keeps_getting_faster_is_not_steady(clock: FakeClock):
    def falling() -> Iterator[float]:
        value = 1.0
        while True:
            yield value
            value *= 0.97

    result = sampling.warm_up(work(clock, falling()), none_compiled, limit_s=10)
    assert not result.warm_up.steady


def test_a_compile_in_the_middle_starts_the_warm_up_again(clock: FakeClock):
    calls = {"n": 0}

    def compiles() -> int:
        return 1 if calls["n"] >= 150 else 0

    inner = work(clock, forever(0.010))

    def call() -> None:
        calls["n"] += 1
        inner()

    sampling.warm_up(call, compiles, limit_s=60)
    assert calls["n"] >= 90
    calls["n"] = 100
    result = sampling.warm_up(call, compiles, limit_s=60)
    assert result.warm_up.calls < calls["n"] - 100


def test_the_limit_ends_a_warm_up_of_very_slow_calls(clock: FakeClock):
    result = sampling.warm_up(work(clock, forever(30.0)), none_compiled, limit_s=20)
    assert result.warm_up.calls == 1
    assert result.calls_per_batch == 1


def test_a_batch_is_time_per_call(clock: FakeClock):
    assert sampling.time_batch(work(clock, iter([0.1, 0.3])), 2) == pytest.approx(0.2)


def test_single_calls_end_at_the_limit(clock: FakeClock):
    samples = sampling.time_calls(work(clock, forever(0.5)), calls=100, limit_s=2.0)
    assert samples == (0.5, 0.5, 0.5, 0.5)
