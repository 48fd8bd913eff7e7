"""Faster, slower, no difference, undecided: what a race shows and how often it errs."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_fakes import EAGER, candidate, race

from compilot.measure.stats import MIN_MARGIN
from compilot.records import Comparison, Outcome, ProcessSamples, Race, encode
from compilot.verdict import compare, compare_columns

FAST = candidate("fast")


def changed(original: Race, change: object) -> Race:
    """The same race with every row passed through a function."""
    sets = tuple(
        msgspec.structs.replace(p, rounds=tuple(tuple(change(row)) for row in p.rounds))  # type: ignore[operator]
        for p in original.processes
    )
    return msgspec.structs.replace(original, processes=sets)


def test_a_clear_speed_up_is_shown_with_its_interval() -> None:
    comparison = compare(race({FAST.id: 1.93}), FAST.id, EAGER.id)
    assert comparison.outcome is Outcome.FASTER
    assert comparison.low < 1.93 < comparison.high
    assert (comparison.processes, comparison.pairs) == (3, 40)
    assert comparison.doubts == ()


def test_a_clear_slow_down_is_shown() -> None:
    assert compare(race({FAST.id: 0.8}), FAST.id, EAGER.id).outcome is Outcome.SLOWER


def test_a_difference_within_the_margin_is_none_and_says_what_could_have_been_seen() -> None:
    comparison = compare(race({FAST.id: 1.005}), FAST.id, EAGER.id)
    assert comparison.outcome is Outcome.NO_DIFFERENCE
    assert comparison.mde > comparison.margin


def test_eager_against_itself_compares_the_two_columns_of_the_aa_arm() -> None:
    comparison = compare(race({FAST.id: 2.0}), EAGER.id, EAGER.id)
    assert comparison == compare_columns(race({FAST.id: 2.0}), 1, 0)
    assert comparison.outcome is Outcome.NO_DIFFERENCE


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 2.0), st.floats(1e-3, 1e3))
def test_the_unit_of_time_changes_nothing(ratio: float, scale: float) -> None:
    original = race({FAST.id: ratio}, scatter=0.02)
    there = compare(original, FAST.id, EAGER.id)
    scaled = compare(changed(original, lambda row: [scale * x for x in row]), FAST.id, EAGER.id)
    assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx((there.ratio, there.low, there.high))
    assert scaled.outcome is there.outcome


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 2.0), st.integers(0, 1000))
def test_swapping_the_arms_inverts_the_ratio(ratio: float, seed: int) -> None:
    original = race({FAST.id: ratio}, scatter=0.02, seed=seed)
    there, back = compare(original, FAST.id, EAGER.id), compare(original, EAGER.id, FAST.id)
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))
    assert {there.outcome, back.outcome} != {Outcome.FASTER}


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0]), st.integers(0, 2), st.integers(0, 39))
def test_one_impossible_sample_means_undecided(bad: float, process: int, row: int) -> None:
    original = race({FAST.id: 3.0})
    rounds = [list(map(list, p.rounds)) for p in original.processes]
    rounds[process][row][2] = bad
    sets = tuple(ProcessSamples(rounds=tuple(map(tuple, r))) for r in rounds)
    comparison = compare(msgspec.structs.replace(original, processes=sets), FAST.id, EAGER.id)
    assert comparison.outcome is Outcome.UNDECIDED
    assert (comparison.ratio, comparison.low, comparison.high) == (1.0, 1.0, 1.0)
    assert "no interval" in comparison.doubts[0]
    assert b"null" not in encode(comparison)


@pytest.mark.parametrize("broken", [race({FAST.id: 3.0}, processes=0), race({FAST.id: 3.0}, pairs=2)])
def test_too_little_data_means_undecided(broken: Race) -> None:
    assert compare(broken, FAST.id, EAGER.id).outcome is Outcome.UNDECIDED


def test_doubts_are_carried() -> None:
    comparison = compare(race({FAST.id: 2.0}, processes=1, settle_timeouts=2, load="busy"), FAST.id, EAGER.id)
    assert comparison.doubts == ("one process", "settle timeouts: 2", "busy")


def test_without_an_aa_arm_the_margin_is_the_fallback() -> None:
    full = race({FAST.id: 1.04})
    bare = msgspec.structs.replace(changed(full, lambda r: [r[0], r[2]]), arms=(EAGER.id, FAST.id), with_aa=False)
    wide, narrow = (compare(bare, FAST.id, EAGER.id, fallback_margin=m) for m in (0.05, 0.02))
    assert (wide.outcome, narrow.outcome) == (Outcome.NO_DIFFERENCE, Outcome.FASTER)
    assert "no A/A arm: margin assumed" in wide.doubts


def test_more_pairs_narrow_the_interval() -> None:
    few, many = (compare(race({FAST.id: 1.2}, pairs=n, scatter=0.1), FAST.id, EAGER.id) for n in (20, 320))
    assert many.high - many.low < 0.5 * (few.high - few.low)
    assert many.mde < few.mde


@pytest.mark.parametrize(("scatter", "bias"), [(0.01, 0.002), (0.05, 0.003), (0.05, 0.008), (0.15, 0.003)])
def test_identical_programs_are_hardly_ever_called_different(scatter: float, bias: float) -> None:
    """One in forty is allowed; drift and process bias as measured on a busy machine."""
    outcomes = [
        compare(
            race({FAST.id: 1.0}, scatter=scatter, bias=bias, drift=0.01, pairs=20, seed=s), FAST.id, EAGER.id
        ).outcome
        for s in range(80)
    ]
    assert outcomes.count(Outcome.NO_DIFFERENCE) >= 78


@pytest.mark.parametrize("direction", [1, -1])
def test_an_effect_of_twice_the_margin_is_found(direction: int) -> None:
    """On a machine quiet enough that the practical margin of 1 % decides, not its noise."""
    ratio = 1.0 + direction * 2 * MIN_MARGIN
    wanted = Outcome.FASTER if direction > 0 else Outcome.SLOWER
    seen = [
        compare(race({FAST.id: ratio}, scatter=0.01, bias=0.001, pairs=80, seed=s), FAST.id, EAGER.id)
        for s in range(40)
    ]
    assert np.mean([comparison.outcome is wanted for comparison in seen]) >= 0.95


def test_on_a_noisy_machine_the_stated_mde_is_found() -> None:
    """Found in 82 % of 600 simulated races; 120 of them stay within three standard errors (10 %) of that."""

    def judged(ratio: float, seed: int) -> Comparison:
        return compare(race({FAST.id: ratio}, scatter=0.08, bias=0.002, pairs=40, seed=seed), FAST.id, EAGER.id)

    stated = float(np.mean([judged(1.0, seed).mde for seed in range(60)]))
    found = [judged(1.0 + stated, 5000 + seed).outcome is Outcome.FASTER for seed in range(120)]
    assert 0.72 <= np.mean(found) <= 0.92
