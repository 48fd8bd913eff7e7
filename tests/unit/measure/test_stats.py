"""One arm's figures, the race's noise, when to stop, when a callable is warm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilot.measure import stats
from compilot.records import ProcessSamples, Race

seconds = st.floats(min_value=1e-6, max_value=1e3)
scales = st.floats(min_value=1e-3, max_value=1e3)


def race_of(*processes: np.ndarray, with_aa: bool = True) -> Race:
    arms = ("eager", "eager", "candidate")[: processes[0].shape[1]]
    samples = tuple(ProcessSamples(rounds=tuple(map(tuple, p.tolist()))) for p in processes)
    return Race(arms=arms, with_aa=with_aa, processes=samples)


def noisy(pairs: int, *, scatter: float, seed: int = 0, processes: int = 3) -> Race:
    rng = np.random.default_rng(seed)
    return race_of(*(np.exp(rng.normal(0.0, scatter, (pairs, 3))) for _ in range(processes)))


# ---- tails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "calls"), [(0.90, 64), (0.95, 130), (0.99, 660)])
def test_a_percentile_needs_enough_calls(q: float, calls: int) -> None:
    assert stats.calls_needed(q) == calls
    assert stats.percentile_or_none([1.0] * (calls - 1), q) is None
    assert stats.percentile_or_none([1.0] * calls, q) == 1.0


@given(st.floats(0.5, 0.98), st.floats(0.001, 0.019))
def test_a_further_percentile_needs_more_calls(q: float, more: float) -> None:
    assert stats.calls_needed(q + more) >= stats.calls_needed(q)


@given(st.lists(seconds, min_size=1, max_size=50))
def test_summary_stays_within_the_samples(samples: list[float]) -> None:
    summary = stats.summary(samples)
    assert summary is not None
    assert summary.n == len(samples)
    assert min(samples) <= summary.median_s <= max(samples)
    assert summary.p95_s is None


def test_summary_of_many_calls_has_tails() -> None:
    summary = stats.summary([float(i) for i in range(1, 1001)])
    assert summary is not None
    assert summary.p95_s == pytest.approx(950.05)
    assert summary.p99_s == pytest.approx(990.01)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_no_summary_of_nothing_or_nonsense(samples: list[float]) -> None:
    assert stats.summary(samples) is None


def test_a_percentile_outside_its_range_is_a_bug() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        stats.calls_needed(1.0)
    with pytest.raises(ValueError, match="no samples"):
        stats.median([])


def test_far_out_samples_are_counted() -> None:
    quiet = [1.0, 1.1, 1.2, 1.3] * 10
    assert stats.count_far_out(quiet) == 0
    assert stats.count_far_out([*quiet, 9.0, 0.0001 - 5]) == 2
    assert stats.count_far_out([1.0, 99.0]) == 0


# ---- noise and margin --------------------------------------------------------------------------------------------


def test_the_margin_is_the_noise_but_at_least_one_percent() -> None:
    loud, quiet = noisy(40, scatter=0.2), noisy(40, scatter=0.0001)
    noise = stats.aa_noise(loud)
    assert noise is not None
    assert noise > 0.02
    assert stats.margin(loud) == noise
    assert stats.margin(quiet) == stats.MIN_MARGIN


def test_more_pairs_and_more_processes_lower_the_noise() -> None:
    def mean_noise(pairs: int, processes: int) -> float:
        return float(
            np.mean([stats.aa_noise(noisy(pairs, scatter=0.1, seed=s, processes=processes)) or 0 for s in range(8)])
        )

    assert mean_noise(160, 3) < mean_noise(20, 3)
    assert mean_noise(40, 6) < mean_noise(40, 2)


def test_a_biased_process_raises_the_noise() -> None:
    rng = np.random.default_rng(0)
    flat = [np.exp(rng.normal(0.0, 0.01, (80, 3))) for _ in range(3)]
    biased = [p * [1.0, bias, 1.0] for p, bias in zip(flat, (1.05, 0.97, 1.04), strict=True)]
    assert (stats.aa_noise(race_of(*biased)) or 0) > 3 * (stats.aa_noise(race_of(*flat)) or 1)


def test_without_an_aa_arm_the_margin_is_assumed() -> None:
    race = race_of(np.ones((20, 2)), with_aa=False)
    assert stats.aa_noise(race) is None
    assert stats.margin(race) == stats.FALLBACK_MARGIN
    assert stats.margin(race, fallback=0.05) == 0.05


@given(st.floats(0, 0.5), st.floats(0.01, 0.2))
def test_the_smallest_visible_effect_is_beyond_margin_and_half_width(half_width: float, margin: float) -> None:
    assert stats.mde(half_width, margin) >= margin + half_width


# ---- stopping ----------------------------------------------------------------------------------------------------


def test_a_precise_race_stops_at_a_look_and_only_there() -> None:
    for pairs in range(1, 60):
        stop, reason = stats.should_stop(noisy(pairs, scatter=0.001), [2], 0.01)
        assert stop == (pairs in stats.LOOKS), reason


def test_a_noisy_race_runs_to_the_last_look() -> None:
    for look in stats.LOOKS[:-1]:
        stop, reason = stats.should_stop(noisy(look, scatter=0.5), [2], 0.01)
        assert not stop
        assert "half-width" in reason
    assert stats.should_stop(noisy(stats.LOOKS[-1], scatter=0.5), [2], 0.01) == (True, "last look: 320 pairs")


def test_a_large_difference_alone_never_stops_a_race() -> None:
    race = noisy(40, scatter=0.3)
    doubled = race_of(*(np.array(p.rounds) * [1.0, 1.0, 0.1] for p in race.processes))
    assert stats.should_stop(race, [2], 0.01)[0] is False
    assert stats.should_stop(doubled, [2], 0.01)[0] is False


def test_the_noisiest_column_decides_when_to_stop() -> None:
    rng = np.random.default_rng(0)
    race = race_of(*(np.exp(rng.normal(0, 1, (40, 3)) * [0.001, 0.3, 0.001]) for _ in range(3)))
    assert stats.should_stop(race, [2], 0.01)[0] is True
    assert stats.should_stop(race, [1, 2], 0.01)[0] is False


def test_nothing_measured_is_no_reason_to_stop() -> None:
    assert stats.should_stop(Race(arms=("e", "c"), with_aa=False, processes=()), [1], 0.01)[0] is False
    broken = race_of(np.full((20, 3), math.nan))
    assert stats.should_stop(broken, [2], 0.01) == (False, "no interval at 20 pairs")


# ---- warm-up -----------------------------------------------------------------------------------------------------


def test_warm_up_needs_three_calls_and_one_second() -> None:
    assert stats.is_steady([]) == (False, None)
    assert stats.is_steady([0.9, 0.9]) == (False, None)
    assert stats.is_steady([0.01] * 50) == (False, 0.0)
    assert stats.is_steady([0.01] * 150) == (True, 0.0)
    assert stats.is_steady([1.0, math.nan, 1.0])[0] is False


def test_calls_that_still_get_faster_are_not_steady() -> None:
    falling = [0.1 * 0.99**i for i in range(60)]
    steady, slope = stats.is_steady(falling)
    assert not steady
    assert slope == pytest.approx(0.99**19 - 1, abs=0.03)


def test_a_slow_start_is_forgotten() -> None:
    assert stats.is_steady([5.0, 1.0, 0.3] + [0.1] * 30)[0] is True


def test_a_few_calls_of_a_slow_model() -> None:
    assert stats.is_steady([2.0, 2.1, 1.95])[0] is True  # scatter, not slope
    assert stats.is_steady([3.0, 2.5, 2.0])[0] is False  # in line


def test_noise_alone_is_mostly_called_steady() -> None:
    rng = np.random.default_rng(0)
    for calls, call_s in ((4, 0.5), (12, 0.1), (300, 0.01), (5000, 0.001)):
        seen = [stats.is_steady((call_s * np.exp(rng.normal(0, 0.18, calls))).tolist())[0] for _ in range(100)]
        assert sum(seen) >= 80, calls


@settings(deadline=None)
@given(st.lists(st.floats(0.3, 2.0), min_size=4, max_size=40), st.floats(1.0, 100.0))
def test_steadiness_does_not_depend_on_the_unit_of_time(samples: list[float], scale: float) -> None:
    _, slope = stats.is_steady(samples)
    _, scaled = stats.is_steady([sample * scale for sample in samples])
    assert scaled == pytest.approx(slope, abs=1e-9)


@given(st.lists(seconds, min_size=1, max_size=20))
def test_a_batch_lasts_long_enough(samples: list[float]) -> None:
    calls = stats.calls_per_batch(samples)
    assert calls >= 1
    assert calls * max(samples) >= min(0.020, stats.BATCH_TARGET_S) * 0.999
    assert calls == 1 or (calls - 1) * min(samples) <= 0.020  # equal where the product is rounded up


@pytest.mark.parametrize("samples", [[], [0.0], [math.nan, -1.0]])
def test_a_batch_of_unknown_calls_is_one_call(samples: list[float]) -> None:
    assert stats.calls_per_batch(samples) == 1


def _live_race(*speeds: float, noise: float = 0.01) -> Race:
    """Eager, eager again, and arms of these speeds over it; 20 rounds."""
    random = np.random.default_rng(0)
    scatter = random.normal(0.0, noise, size=(20, len(speeds) + 2))
    means = [1.0, 1.0, *(1.0 / speed for speed in speeds)]
    rounds = tuple(tuple(float(m * math.exp(s)) for m, s in zip(means, row, strict=True)) for row in scatter)
    arms = ("eager", "eager", *(f"arm{n}" for n in range(len(speeds))))
    return Race(arms=arms, with_aa=True, processes=(ProcessSamples(rounds=rounds),))


def test_an_arm_that_is_shown_faster_than_all_others_leads() -> None:
    race = _live_race(1.5, 1.9, 1.2)
    assert stats.leads(race, stats.candidate_columns(race))


@pytest.mark.parametrize("race", [_live_race(1.5, 1.505, 1.2), _live_race(1.5, 1.6, noise=0.2), _live_race(1.5)])
def test_no_arm_leads_among_equals_in_noise_or_alone(race: Race) -> None:
    assert not stats.leads(race, stats.candidate_columns(race))
