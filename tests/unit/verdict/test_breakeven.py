"""When a slow first call has paid for itself, and how sure that is."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from verdict_fakes import candidate, eager_trial, race, trial

from compilot.measure.stats import Saving, saving
from compilot.records import BreakEven, Outcome, ProcessSamples, Race
from compilot.verdict import break_even, break_even_in, compare, decide, total_time_s

per_call = st.floats(1e-4, 1.0)
first = st.floats(1e-3, 100.0)
QUICK = candidate("quick")


def saved(eager_s: float, candidate_s: float) -> Saving:
    """As it is known from two times: without an interval worth the name."""
    return Saving(estimate_s=eager_s - candidate_s, low_s=eager_s - candidate_s, high_s=eager_s - candidate_s)


def even_in(final: Race, *, cold_s: float = 5.0, warm_s: float | None = 0.5) -> BreakEven | None:
    versus = compare(final, QUICK.id, final.arms[0])
    return break_even_in(final, versus, cold_s=cold_s, warm_s=warm_s, eager_first_s=0.010)


def test_the_story() -> None:
    """11 s to compile, 5 ms instead of 10 ms a call: 2198 saved calls of 5 ms, and the first one."""
    even = break_even(saved(0.010, 0.005), cold_s=11.0, warm_s=1.0, eager_first_s=0.010)
    assert (even.cold_calls, even.warm_calls) == (2199, 199)


@pytest.mark.parametrize("candidate_s", [0.010, 0.011, math.nan])
def test_what_is_not_faster_never_pays_back(candidate_s: float) -> None:
    even = break_even(saved(0.010, candidate_s), 11.0, 1.0, 0.01)
    assert (even.cold_calls, even.cold_low, even.cold_high) == (None, None, None)


def test_a_start_as_quick_as_eagers_pays_back_at_once_and_an_unknown_one_cannot_be_told() -> None:
    even = break_even(saved(0.010, 0.005), 0.005, None, 0.010)
    assert (even.cold_calls, even.warm_calls, even.warm_low) == (1, None, None)


def test_total_time_counts_the_first_call_once() -> None:
    assert total_time_s(0, 5.0, 1.0) == 0.0
    assert total_time_s(1, 5.0, 1.0) == 5.0
    assert total_time_s(10, 5.0, 1.0) == 14.0


@given(per_call, per_call, first, first)
def test_break_even_is_the_first_call_at_which_the_totals_meet(
    eager_s: float, candidate_s: float, cold_s: float, eager_first_s: float
) -> None:
    assume(candidate_s < 0.99 * eager_s)
    calls = break_even(saved(eager_s, candidate_s), cold_s, None, eager_first_s).cold_calls
    assert calls is not None
    slack = 1e-9 * (cold_s + calls * eager_s)
    assert total_time_s(calls, cold_s, candidate_s) <= total_time_s(calls, eager_first_s, eager_s) + slack
    if calls > 1:
        before = calls - 1
        assert total_time_s(before, cold_s, candidate_s) >= total_time_s(before, eager_first_s, eager_s) - slack


# ---- the interval --------------------------------------------------------------------------------------------------


def test_where_the_upper_end_never_pays_back_there_is_none() -> None:
    even = break_even(Saving(estimate_s=0.005, low_s=-0.001, high_s=0.010), 10.0, 1.0, 0.0)
    assert (even.cold_low, even.cold_calls, even.cold_high) == (1001, 2001, None)
    assert (even.warm_low, even.warm_calls, even.warm_high) == (101, 201, None)


@settings(deadline=None, max_examples=40)
@given(
    st.floats(1.05, 5.0),
    st.integers(6, 60),
    st.integers(1, 5),
    st.floats(0.0, 0.3),
    st.floats(0.0, 0.1),
    st.floats(0.001, 100.0),
    st.integers(0, 999),
)
def test_the_interval_contains_the_value(
    ratio: float, pairs: int, processes: int, scatter: float, bias: float, cold_s: float, seed: int
) -> None:
    final = race({QUICK.id: ratio}, pairs=pairs, processes=processes, scatter=scatter, bias=bias, seed=seed)
    even = even_in(final, cold_s=cold_s)
    assume(even is not None)
    assert even is not None
    for low, calls, high in (
        (even.cold_low, even.cold_calls, even.cold_high),
        (even.warm_low, even.warm_calls, even.warm_high),
    ):
        assert low is not None
        assert calls is not None
        assert high is not None  # shown faster: the whole interval saves something
        assert low <= calls <= high


@pytest.mark.parametrize("processes", [1, 3])
def test_more_pairs_make_it_narrower(processes: int) -> None:
    """Independent noise, eight times as many pairs: about a third of the width."""
    few, many = (sum(scattered_width(pairs, processes, seed) for seed in range(8)) for pairs in (20, 160))
    assert many < 0.6 * few


def scattered_width(pairs: int, processes: int, seed: int) -> int:
    how = {"pairs": pairs, "processes": processes, "scatter": 0.05, "seed": seed}
    even = even_in(race({QUICK.id: 2.0}, bias=0.0, drift=0.0, **how))  # type: ignore[arg-type]
    assert even is not None
    return width(even)


def width(even: BreakEven) -> int:
    assert even.cold_low is not None
    assert even.cold_high is not None
    return even.cold_high - even.cold_low


def test_it_is_about_as_wide_as_the_gains_own() -> None:
    """Of 2x with a steady eager: what is saved is 1 - 1/ratio of its time."""
    final = race({QUICK.id: 2.0}, scatter=0.02, bias=0.0, drift=0.0)
    versus, even = compare(final, QUICK.id, final.arms[0]), even_in(final)
    assert even is not None
    assert even.cold_calls is not None
    assert even.cold_low is not None
    assert even.cold_low / even.cold_calls == pytest.approx((1 - 1 / versus.ratio) / (1 - 1 / versus.high), rel=0.03)


def test_a_baseline_that_drifts_widens_it_though_the_ratio_is_steady() -> None:
    """Every process is 1.5 times as slow as the one before, eager and candidate alike."""
    steady = race({QUICK.id: 2.0}, scatter=0.001, bias=0.0, drift=0.0)
    drifting = msgspec.structs.replace(
        steady,
        processes=tuple(
            ProcessSamples(rounds=tuple(tuple(1.5**n * s for s in row) for row in process.rounds))
            for n, process in enumerate(steady.processes)
        ),
    )
    narrow, wide = even_in(steady), even_in(drifting)
    assert narrow is not None
    assert wide is not None
    assert width(wide) > 10 * width(narrow)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.001])
def test_a_plan_that_is_not_shown_faster_has_none(ratio: float) -> None:
    final = race({QUICK.id: ratio})
    assert compare(final, QUICK.id, final.arms[0]).outcome is not Outcome.FASTER
    assert even_in(final) is None
    assert decide([eager_trial(), trial(QUICK)], final).break_even is None


def test_the_verdicts_break_even_is_the_races_own() -> None:
    final = race({QUICK.id: 2.0})
    verdict = decide([eager_trial(cold_s=0.010), trial(QUICK, cold_s=5.0)], final)
    assert verdict.break_even == even_in(final, cold_s=5.0, warm_s=None)


def test_samples_that_are_no_times_save_nothing_that_can_be_told() -> None:
    final = race({QUICK.id: 2.0})
    spoilt = ProcessSamples(rounds=((0.0, 0.01, 0.005), *final.processes[0].rounds[1:]))
    broken = msgspec.structs.replace(final, processes=(spoilt, *final.processes[1:]))
    assert saving(broken, 2, 0, 0.010) is None
    assert saving(final, 2, 0, 0.010) is not None
