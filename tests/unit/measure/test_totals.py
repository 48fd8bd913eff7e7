"""Totals of requests that are not alike, with their interval."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from compilot.measure.totals import total_interval, total_noise
from compilot.records import ProcessSamples, Race


def race(speeds: Sequence[float], *, processes: int = 3, requests: int = 64, noise: float = 0.02) -> Race:
    """Eager twice, then arms of these speeds, over heavy-tailed requests."""
    sizes = [random.Random(n).lognormvariate(0.0, 1.0) for n in range(requests)]
    made = []
    for process in range(processes):
        draw = random.Random(f"p{process}")
        made.append(tuple(tuple(s / v * draw.lognormvariate(0, noise) for v in (1.0, 1.0, *speeds)) for s in sizes))
    arms = ("eager", "eager", *(str(n) for n in range(len(speeds))))
    return Race(arms=arms, with_aa=True, processes=tuple(ProcessSamples(rounds=rows) for rows in made))


def test_the_ratio_of_totals_and_an_interval_around_it() -> None:
    found = total_interval(race([2.0]), 2, 0)
    assert found is not None
    assert math.exp(found.estimate) == pytest.approx(2.0, rel=0.02)
    assert found.low < found.estimate < found.high
    assert total_interval(race([2.0]), 2, 0) == found  # the same each time


def test_long_requests_count_for_what_they_take() -> None:
    rows = tuple((1.0, 0.5) for _ in range(30)) + tuple((100.0, 200.0) for _ in range(2))
    found = total_interval(Race(arms=("eager", "a"), with_aa=False, processes=(ProcessSamples(rounds=rows),)), 1, 0)
    assert found is not None
    assert math.exp(found.estimate) == pytest.approx(230.0 / 415.0)  # most requests are faster, all of them slower


def test_a_start_is_shared_by_the_calls() -> None:
    plain, charged = (total_interval(race([2.0]), 2, 0, more_s=(more, 0.0)) for more in (0.0, 1.0))
    assert plain is not None
    assert charged is not None
    assert charged.estimate < plain.estimate


def test_eager_against_itself_is_the_noise() -> None:
    quiet, loud = (total_noise(race([2.0], noise=noise)) for noise in (0.01, 0.3))
    assert quiet is not None
    assert loud is not None
    assert quiet < 0.02 < loud
    assert total_noise(Race(arms=("eager",), with_aa=False, processes=())) is None


def test_what_hits_a_whole_window_is_one_accident_and_not_many() -> None:
    draw = random.Random(1)
    rows = []
    for _ in range(8):  # windows of eight requests, each hit in one arm by one and the same factor
        factor = draw.lognormvariate(0.0, 0.2)
        rows += [(1.0, factor) for _ in range(8)]
    widths = []
    for window in (1, 8):
        one = ProcessSamples(rounds=tuple(rows), window=window)
        found = total_interval(Race(arms=("eager", "a"), with_aa=False, processes=(one, one, one)), 1, 0)
        assert found is not None
        widths.append(found.high - found.low)
    assert widths[1] > 1.25 * widths[0]


def test_a_few_windows_have_no_interval() -> None:
    def found(requests: int, window: int) -> object:
        one = ProcessSamples(rounds=tuple((1.0, 0.5) for _ in range(requests)), window=window)
        return total_interval(Race(arms=("eager", "a"), with_aa=False, processes=(one,)), 1, 0)

    assert found(24, 8) is None
    assert found(32, 8) is not None


def test_what_cannot_be_computed_is_nothing() -> None:
    assert total_interval(race([2.0], requests=3), 2, 0) is None
    broken = ProcessSamples(rounds=tuple((1.0, math.nan) for _ in range(20)))
    assert total_interval(Race(arms=("eager", "a"), with_aa=False, processes=(broken,)), 1, 0) is None


def test_identical_arms_are_rarely_told_apart() -> None:
    missed = 0
    for seed in range(60):
        draw = random.Random(seed)
        rows = [
            tuple(
                tuple(draw.lognormvariate(0, 1) * draw.lognormvariate(0, 0.1) for _ in range(1)) * 1 for _ in range(48)
            )
            for _ in range(3)
        ]
        paired = [tuple((s[0], s[0] * draw.lognormvariate(0, 0.1)) for s in own) for own in rows]
        one = Race(arms=("eager", "a"), with_aa=False, processes=tuple(ProcessSamples(rounds=r) for r in paired))
        found = total_interval(one, 1, 0)
        assert found is not None
        missed += not found.low <= 0.0 <= found.high
    assert missed <= 6
