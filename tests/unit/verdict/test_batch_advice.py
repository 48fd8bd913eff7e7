"""How large batches should be."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilot.errors import InputError
from compilot.records import BatchPoint
from compilot.verdict.batch_advice import advice, recommended, split


def test_larger_batches_as_long_as_they_bring_more_samples_per_second() -> None:
    size, why = recommended({1: 1.0, 2: 1.2, 4: 2.0, 8: 3.92})
    assert size == 4
    assert why == "a batch of 8 brings 2.0 % more samples/s than one of 4"


def test_a_larger_batch_that_is_slower_per_sample_is_said_so() -> None:
    assert recommended({1: 1.0, 2: 2.2}) == (1, "a batch of 2 brings 9.1 % fewer samples/s than one of 1")


def test_where_the_largest_is_the_best_larger_ones_may_pay_as_well() -> None:
    size, why = recommended({1: 1.0, 2: 1.1, 4: 1.2})
    assert size == 4
    assert "3.33x those of 1" in why
    assert recommended({3: 1.0}) == (3, "no other size was measured")


def test_a_batch_whose_parts_are_faster_is_split() -> None:
    assert split(16, {4: 1.0, 8: 1.5, 16: 5.0}).parts == (8, 8)
    assert split(5, {1: 1.0, 4: 1.1, 8: 9.0}).parts == (4, 1)
    assert split(7, {4: 1.0, 8: 1.5}).parts == (8,)  # padded


def test_each_part_may_cost_something_besides() -> None:
    assert split(16, {8: 1.5, 16: 3.2}, part_s=0.5).parts == (16,)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 9),
    st.dictionaries(st.integers(1, 8), st.floats(0.1, 5.0), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3]),
)
def test_no_other_parts_are_cheaper(batch: int, call_s: dict[int, float], part_s: float) -> None:
    found = split(batch, call_s, part_s)
    every = (parts for n in range(1, batch + 1) for parts in combinations_with_replacement(call_s, n))
    best = min(sum(call_s[part] + part_s for part in parts) for parts in every if sum(parts) >= batch)
    assert found.call_s == pytest.approx(best)
    assert sum(found.parts) >= batch


def point(batch: int, call_s: float | None, name: str = "eager") -> BatchPoint:
    return BatchPoint(candidate=name, candidate_id=name, batch=batch, call_s=call_s)


def test_advice_for_each_way_to_run_the_model_that_has_figures() -> None:
    points = [point(1, 1.0), point(8, 2.0), point(16, 9.0), point(1, None, "broken"), point(1, 0.5, "fast")]
    eager, fast = advice(points)
    assert (eager.candidate, eager.max_batch_size, eager.samples_per_s) == ("eager", 8, 4.0)
    assert eager.splits == {"16": (8, 8)}
    assert (fast.candidate, fast.max_batch_size, fast.splits) == ("fast", 1, {})


@pytest.mark.parametrize("call_s", [{}, {1: 0.0}, {1: float("nan")}])
def test_what_has_no_times_is_refused(call_s: dict[int, float]) -> None:
    with pytest.raises(InputError, match="above zero"):
        recommended(call_s)
    with pytest.raises(InputError, match="at least one sample"):
        split(0, {1: 1.0})
