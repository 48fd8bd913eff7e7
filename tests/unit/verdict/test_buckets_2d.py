"""Good buckets in two dimensions: compared with trying every subset."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_fakes import counts, points

from compilot.records import SizeDemand
from compilot.verdict.buckets import Prices
from compilot.verdict.buckets_2d import good_buckets
from compilot.verdict.shape_costs import Costs, Sizes

BATCHES, LENGTHS = (1, 2, 4), (8, 16, 32)
GREEDY = 1 - 1 / math.e  # of the best saving: the bound of greedy choices of which each saves less than the one before


def grid(base: float, per_sample: float, per_token: float) -> Costs:
    """Fixed cost, and cost of the work."""
    measured = {(b, t): base + per_sample * b + per_token * b * t for b, t in product(BATCHES, LENGTHS)}
    return Costs(points(measured))


seconds = st.floats(0.01, 1.0)
grids = st.builds(grid, seconds, seconds, seconds)
pairs = st.tuples(st.sampled_from(BATCHES), st.sampled_from(LENGTHS))
traffic = st.dictionaries(pairs, st.integers(1, 50), min_size=2, max_size=6).map(counts)


def total(seen: list[SizeDemand], programs: tuple[Sizes, ...], prices: Prices) -> float:
    whole = 0.0
    for one in seen:
        ways = [prices.static.at(p) for p in programs if all(a >= b for a, b in zip(p, one.sizes, strict=True))]
        ways += [] if prices.dynamic is None else [prices.dynamic.at(one.sizes)]
        whole += one.count * min(ways, default=math.inf)
    return whole


@settings(max_examples=100, deadline=None)
@given(traffic, grids, st.none() | st.floats(1.0, 3.0), st.integers(1, 3))
def test_it_saves_nearly_as_much_as_the_best_subset(
    seen: list[SizeDemand], static: Costs, slower: float | None, most: int
) -> None:
    dynamic = (
        None
        if slower is None
        else Costs(points({place: slower * static.at(place) for place in product(BATCHES, LENGTHS)}))
    )
    prices = Prices(static, dynamic, largest=(4, 32))
    found = good_buckets(seen, prices, most)
    best = min(total(seen, chosen, prices) for chosen in combinations(product(BATCHES, LENGTHS), most))
    first, last = found[0].calls_s, found[-1].calls_s
    assert last == pytest.approx(total(seen, found[-1].programs, prices))
    assert len(found[-1].programs) <= most
    assert last <= 1.25 * best + 1e-9
    assert dynamic is None or first - last >= GREEDY * (first - best) - 1e-9


def test_every_bucket_is_one_that_calls_need_and_the_grid_is_never_full() -> None:
    seen = counts({(1, 32): 100, (4, 8): 100})
    found = good_buckets(seen, Prices(grid(0.01, 0.01, 0.1), largest=(4, 32)), 8)
    assert found[0].programs == ((4, 32),)  # one bucket must hold both
    assert found[1].programs == ((1, 32), (4, 8))  # a swap takes the one that nobody needs any more
    assert found[1].calls_s < found[0].calls_s


def test_the_dynamic_program_serves_what_no_bucket_does() -> None:
    static, dynamic = grid(0.0, 0.0, 0.1), grid(0.5, 0.0, 0.1)
    [none, one] = good_buckets(counts({(1, 8): 100, (4, 32): 1}), Prices(static, dynamic, largest=(4, 32)), 1)
    assert none.programs == ()
    assert one.programs == ((1, 8),)


def test_many_sizes_are_thinned_out_and_all_of_them_served() -> None:
    seen = counts({(1 + n % 16, 1 + (37 * n) % 500): 1 for n in range(800)})
    measured = {(b, t): 1.0 + b * t for b, t in product((1, 16), (1, 500))}
    found = good_buckets(seen, Prices(Costs(points(measured)), largest=(16, 500)), 6)
    assert math.isfinite(found[-1].calls_s)
    assert found[-1].calls_s < 0.8 * found[0].calls_s
