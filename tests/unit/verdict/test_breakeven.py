"""When a slow first call has paid for itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compilot.verdict import break_even, total_time_s

per_call = st.floats(1e-4, 1.0)
first = st.floats(1e-3, 100.0)


def test_the_story() -> None:
    """11 s to compile, 5 ms instead of 10 ms a call: 2198 saved calls of 5 ms, and the first one."""
    even = break_even(eager_s=0.010, candidate_s=0.005, cold_s=11.0, warm_s=1.0, eager_first_s=0.010)
    assert (even.cold_calls, even.warm_calls) == (2199, 199)


@pytest.mark.parametrize("candidate_s", [0.010, 0.011, math.nan])
def test_what_is_not_faster_never_pays_back(candidate_s: float) -> None:
    assert break_even(0.010, candidate_s, 11.0, 1.0, 0.01).cold_calls is None


def test_a_start_as_quick_as_eagers_pays_back_at_once_and_an_unknown_one_cannot_be_told() -> None:
    even = break_even(0.010, 0.005, 0.005, None, 0.010)
    assert (even.cold_calls, even.warm_calls) == (1, None)


def test_total_time_counts_the_first_call_once() -> None:
    assert total_time_s(0, 5.0, 1.0) == 0.0
    assert total_time_s(1, 5.0, 1.0) == 5.0
    assert total_time_s(10, 5.0, 1.0) == 14.0


@given(per_call, per_call, first, first)
def test_break_even_is_the_first_call_at_which_the_totals_meet(
    eager_s: float, candidate_s: float, cold_s: float, eager_first_s: float
) -> None:
    assume(candidate_s < 0.99 * eager_s)
    calls = break_even(eager_s, candidate_s, cold_s, None, eager_first_s).cold_calls
    assert calls is not None
    slack = 1e-9 * (cold_s + calls * eager_s)
    assert total_time_s(calls, cold_s, candidate_s) <= total_time_s(calls, eager_first_s, eager_s) + slack
    if calls > 1:
        before = calls - 1
        assert total_time_s(before, cold_s, candidate_s) >= total_time_s(before, eager_first_s, eager_s) - slack
