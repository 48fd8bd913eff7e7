"""The interval on the speed-up: symmetry, coverage under drift and process bias, refusal of nonsense."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilot.measure.stats import MIN_PAIRS, Interval, hierarchical_bootstrap, log_ratios
from compilot.records import ProcessSamples, Race

pairs = st.lists(st.floats(-1.0, 1.0), min_size=MIN_PAIRS, max_size=45)
processes = st.lists(pairs, min_size=1, max_size=4)


def interval_of(per_process: list[list[float]], **options: int) -> Interval:
    interval = hierarchical_bootstrap(per_process, **options)
    assert interval is not None
    return interval


def simulated(
    rng: np.random.Generator, *, n: int, count: int = 3, bias: float = 0.0, effect: float = 0.0
) -> list[list[float]]:
    """Log ratios with heavy tails, slow drift that pairing does not quite cancel, and a bias that a process keeps."""
    drift = np.cumsum(rng.normal(0.0, 0.002, (count, n)), axis=1)
    drift -= drift.mean(axis=1, keepdims=True)
    return (effect + drift + rng.normal(0.0, bias, (count, 1)) + 0.03 * rng.standard_t(3, (count, n))).tolist()


def test_log_ratio_is_above_zero_for_a_faster_candidate() -> None:
    samples = ProcessSamples(rounds=((2.0, 1.0), (1.0, 2.0), (1.0, 0.0), (math.inf, 1.0)))
    race = Race(arms=("eager", "candidate"), with_aa=False, processes=(samples,))
    up, down, zero, infinite = log_ratios(race, 1, 0)[0]
    assert (up, down) == (math.log(2.0), -math.log(2.0))
    assert math.isnan(zero)
    assert math.isnan(infinite)


@settings(deadline=None, max_examples=40)
@given(processes)
def test_the_interval_holds_together_and_is_repeatable(per_process: list[list[float]]) -> None:
    first = interval_of(per_process, resamples=200, seed=3)
    assert first.low <= first.high
    assert first == interval_of(per_process, resamples=200, seed=3)
    assert first.estimate == pytest.approx(np.mean([np.median(p) for p in per_process]))


@settings(deadline=None, max_examples=40)
@given(processes)
def test_swapping_the_arms_mirrors_the_interval(per_process: list[list[float]]) -> None:
    there = interval_of(per_process, resamples=200)
    back = interval_of([[-pair for pair in p] for p in per_process], resamples=200)
    assert (back.estimate, back.low, back.high) == pytest.approx((-there.estimate, -there.high, -there.low))


@settings(deadline=None, max_examples=40)
@given(processes, st.floats(-2.0, 2.0))
def test_a_speed_up_shifts_the_interval(per_process: list[list[float]], effect: float) -> None:
    there = interval_of(per_process, resamples=200)
    moved = interval_of([[pair + effect for pair in p] for p in per_process], resamples=200)
    assert moved.estimate == pytest.approx(there.estimate + effect, abs=1e-9)
    assert (moved.low, moved.high) == pytest.approx((there.low + effect, there.high + effect), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(processes, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_one_bad_sample_spoils_the_interval(per_process: list[list[float]], bad: float, data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(per_process))
    victim[data.draw(st.integers(0, len(victim) - 1))] = bad
    assert hierarchical_bootstrap(per_process, resamples=50) is None


@pytest.mark.parametrize("nothing", [[], [[]], [[0.1] * (MIN_PAIRS - 1)]])
def test_no_interval_from_too_little(nothing: list[list[float]]) -> None:
    assert hierarchical_bootstrap(nothing) is None


def test_a_process_cut_short_is_left_out() -> None:
    whole = [[0.1, 0.2] * 10, [0.1, 0.3] * 10]
    assert hierarchical_bootstrap([*whole, [9.0]]) == hierarchical_bootstrap(whole)


def test_more_pairs_narrow_the_interval() -> None:
    rng = np.random.default_rng(0)
    widths = [
        np.mean([interval_of(simulated(rng, n=n), resamples=300).half_width for _ in range(10)]) for n in (20, 80, 320)
    ]
    assert widths[0] > 1.5 * widths[1] > 1.5 * 1.5 * widths[2]


def test_processes_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    alike = interval_of(simulated(rng, n=160))
    unlike = interval_of(simulated(rng, n=160, bias=0.05))
    assert unlike.half_width > 2 * alike.half_width


@pytest.mark.parametrize(("n", "bias", "at_least"), [(20, 0.0, 0.95), (80, 0.004, 0.95), (80, 0.012, 0.87)])
def test_the_interval_covers_the_truth(n: int, bias: float, at_least: float) -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(120):
        interval = interval_of(simulated(rng, n=n, bias=bias, effect=0.3), resamples=300)
        covered += interval.low <= 0.3 <= interval.high
    assert covered / 120 >= at_least
