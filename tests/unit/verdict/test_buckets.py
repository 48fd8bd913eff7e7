"""The best buckets in one dimension: as good as trying every subset."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_fakes import counts, points

from compilot.records import SizeDemand
from compilot.verdict.buckets import Chosen, Prices, best_buckets
from compilot.verdict.shape_costs import Costs, Sizes, padded

sizes = st.integers(1, 40)
seconds = st.floats(0.1, 10.0)
curves = st.dictionaries(sizes, seconds, min_size=1, max_size=5).map(lambda curve: Costs(points(curve)))
traffic = st.dictionaries(sizes, st.integers(0, 9), min_size=1, max_size=7).map(counts)


def total(seen: list[SizeDemand], tops: tuple[Sizes, ...], prices: Prices) -> float:
    """What it takes with buckets for these sizes: the smallest that holds a call, or the dynamic program."""
    programs = [padded(prices.static, top, prices.largest, prices.pad_s).sizes for top in tops]
    whole = 0.0
    for one in seen:
        held = [program for top, program in zip(tops, programs, strict=True) if top >= one.sizes][:1]
        ways = [prices.static.at(program) + prices.pad_s * (program > one.sizes) for program in held]
        ways += [] if prices.dynamic is None else [prices.dynamic.at(one.sizes)]
        if not ways:
            return float("inf")
        whole += one.count * min(ways)
    return whole


def brute_force(seen: list[SizeDemand], prices: Prices, number: int) -> float:
    every = sorted(one.sizes for one in seen)
    return min(total(seen, tops, prices) for tops in combinations(every, number))


@settings(max_examples=1000, deadline=None)
@given(traffic, curves, st.none() | curves, st.sampled_from([0.0, 0.5]), st.integers(1, 7))
def test_it_is_as_good_as_trying_every_subset(
    seen: list[SizeDemand], static: Costs, dynamic: Costs | None, pad_s: float, most: int
) -> None:
    prices = Prices(static, dynamic, pad_s, largest=(40,))
    found = best_buckets(seen, prices, most)
    first = 1 if dynamic is None else 0
    assert len(found) == min(most, len(seen)) + 1 - first
    for number, one in enumerate(found, first):
        assert one.calls_s == pytest.approx(brute_force(seen, prices, number), rel=1e-9, abs=1e-12)
        assert len(one.programs) <= number


@settings(max_examples=200, deadline=None)
@given(traffic, curves)
def test_another_bucket_never_makes_it_slower(seen: list[SizeDemand], static: Costs) -> None:
    found = best_buckets(seen, Prices(static), 7)
    for fewer, more in pairwise(found):
        assert more.calls_s <= fewer.calls_s * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(curves, sizes, sizes)
def test_the_cost_of_a_padded_call_never_falls_with_its_size(static: Costs, one: int, other: int) -> None:
    small, large = (padded(static, (size,), (40,)) for size in sorted((one, other)))
    assert small.call_s <= large.call_s * (1 + 1e-9)
    assert large.sizes >= (max(one, other),)


def test_a_larger_program_that_is_faster_serves_the_smaller_size() -> None:
    static = Costs(points({4: 3.0, 7: 9.0, 8: 4.0}))
    assert best_buckets(counts({7: 10}), Prices(static), 1) == [Chosen(((8,),), 40.0)]
    beyond = best_buckets(counts({7: 10}), Prices(static, largest=(7,)), 1)
    assert beyond == [Chosen(((7,),), 90.0)]  # no program is made beyond the declared sizes


def test_one_size_needs_one_bucket() -> None:
    assert best_buckets(counts({37: 5}), Prices(Costs(points({37: 2.0}))), 8) == [Chosen(((37,),), 10.0)]


def test_a_rare_large_size_goes_to_the_dynamic_program_and_the_common_one_gets_its_own() -> None:
    static, dynamic = Costs(points({1: 1.0, 100: 100.0})), Costs(points({1: 2.0, 100: 130.0}))
    [none, one] = best_buckets(counts({10: 1000, 90: 1}), Prices(static, dynamic), 1)
    assert none.programs == ()
    assert one.programs == ((10,),)
    assert one.calls_s == pytest.approx(1000 * static.at((10,)) + dynamic.at((90,)))


def test_a_size_that_was_never_seen_is_served_as_well() -> None:
    static = Costs(points({1: 1.0, 100: 100.0}))
    [one, two] = best_buckets(counts({10: 1000, 100: 0}), Prices(static), 2)
    assert one.programs == ((100,),)  # the only bucket must hold the largest
    assert two.programs == ((10,), (100,))


def test_thousands_of_sizes_are_no_matter() -> None:
    seen = counts({size: 1 + size % 7 for size in range(1, 1001)})
    found = best_buckets(seen, Prices(Costs(points({1: 1.0, 1000: 1000.0})), Costs(points({1: 2.0, 1000: 1100.0}))), 8)
    assert len(found) == 9
    assert found[8].calls_s < found[0].calls_s
