"""Which sizes are worth measuring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shape_fakes import counts

from compilot.errors import InputError
from compilot.records import DimRange
from compilot.verdict.sizes_to_measure import sizes_to_measure

LENGTH, BATCH = DimRange(min=1, max=512), DimRange(min=1, max=32)


def test_quantiles_of_the_trace_with_1_and_2_and_the_ends() -> None:
    seen = counts({size: 100 if 90 <= size <= 110 else 1 for size in range(5, 500)})
    [sizes] = sizes_to_measure([LENGTH], seen)
    assert len(sizes) <= 10
    assert {1, 2, 512} <= set(sizes)
    assert sum(90 <= size <= 110 for size in sizes) >= 5  # most of the calls are there


def test_few_sizes_are_all_measured() -> None:
    assert sizes_to_measure([LENGTH], counts({37: 5, 40: 1})) == ((1, 2, 37, 40, 512),)


def test_1_and_2_only_where_they_are_allowed() -> None:
    assert sizes_to_measure([DimRange(min=16, max=64)], counts({32: 5})) == ((16, 32, 64),)
    assert sizes_to_measure([DimRange(min=8, max=8)], counts({8: 5})) == ((8,),)


@pytest.mark.parametrize(("most", "sizes"), [(2, (1, 512)), (3, (1, 64, 512)), (4, (1, 2, 64, 512))])
def test_where_few_are_allowed_the_ends_come_first_and_a_size_of_the_trace_before_2(
    most: int, sizes: tuple[int, ...]
) -> None:
    seen = counts({16: 10, 64: 80, 100: 10})
    assert sizes_to_measure([LENGTH], seen, most) == (sizes,)
    assert sizes_to_measure([LENGTH, LENGTH], counts({(n, n): 1 for n in range(1, 90)}), 2) == ((1, 512), (1, 512))


def test_without_a_trace_they_grow_by_the_same_factor() -> None:
    [sizes] = sizes_to_measure([LENGTH])
    assert sizes[:2] == (1, 2)
    assert sizes[-1] == 512
    assert len(sizes) >= 9


def test_two_dimensions_have_fewer_of_each_and_a_size_that_was_not_declared_does_not_count() -> None:
    batches, lengths = sizes_to_measure([BATCH, LENGTH], counts({(b, 64): 1 for b in range(1, 60)}))
    assert lengths == (1, 2, 64, 512)
    assert len(batches) <= 5
    assert max(batches) == 32


def test_a_trace_of_other_dimensions_is_refused() -> None:
    with pytest.raises(InputError, match="one number for each"):
        sizes_to_measure([BATCH, LENGTH], counts({37: 1}))


@given(
    st.dictionaries(st.integers(0, 600), st.integers(0, 100), max_size=40),
    st.tuples(st.integers(0, 300), st.integers(0, 300)),
)
def test_always_in_order_inside_the_range_and_not_many(seen: dict[int, int], ends: tuple[int, int]) -> None:
    allowed = DimRange(min=min(ends), max=max(ends))
    [sizes] = sizes_to_measure([allowed], counts(seen))
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == allowed.min
    assert sizes[-1] == allowed.max
    assert len(sizes) <= 10
