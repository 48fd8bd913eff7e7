"""Which sizes get a static program in two dimensions (batch x length): facility location.

In: how often each pair of sizes was seen, what programs cost. Out: for every number of buckets good ones. Each call
goes to the cheapest program that holds it in both dimensions, or to the dynamic one. Greedy: the bucket that saves
most, one after another, up to twice as many as are asked for; then the one that is missed least is taken away, one
after another; single swaps after each step. Never a full grid.
How good: with a dynamic program behind them the buckets save at least 1 - 1/e (63 %) of what the best ones save, since
each saves less the more there are; without one there is no such proof. Against brute force on small cases it is within
25 % (tests; of 1,500 random ones all were the best).
Not covered: one dimension, where the exact answer is cheap (buckets.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from compilot.records import SizeDemand
from compilot.verdict.buckets import Chosen, Floats, Prices
from compilot.verdict.shape_costs import Sizes

MOST_PLACES = 400  # where a bucket may be: the costs of 400 x 4,096 sizes are 13 MB
MOST_SWAPS = 100  # each one helps; this many are never needed
ROOM = 2  # times the buckets that are asked for, before some are taken away: the first ones were chosen alone


def good_buckets(counts: Sequence[SizeDemand], prices: Prices, most: int) -> list[Chosen]:
    """Good sets of 0, 1, ... up to `most` buckets; a number with which not every size is served is left out."""
    places = _places(counts, prices)
    costs, others = _costs(counts, places, prices)
    found = {len(chosen): chosen for chosen in _growing(costs, others, min(ROOM * most, len(places)))}
    for chosen in _shrinking(costs, others, found[max(found)]):
        if _total(costs, others, chosen) < _total(costs, others, found[len(chosen)]):
            found[len(chosen)] = chosen
    told = [
        Chosen(tuple(sorted(places[one] for one in found[number])), _total(costs, others, found[number]))
        for number in range(min(most, max(found)) + 1)
    ]
    return [one for one in told if np.isfinite(one.calls_s)]


def _growing(costs: Floats, others: Floats, most: int) -> Iterator[list[int]]:
    """One place more at each step, then swaps."""
    chosen: list[int] = []
    yield chosen
    for _ in range(most):
        chosen = _swapped(costs, others, [*chosen, _next(costs, others, chosen)])
        yield chosen


def _shrinking(costs: Floats, others: Floats, chosen: list[int]) -> Iterator[list[int]]:
    """One place less at each step, the one that is missed least, then swaps."""
    while len(chosen) > 1:
        fewer = [[one for one in chosen if one != out] for out in chosen]
        chosen = _swapped(costs, others, min(fewer, key=lambda left: _total(costs, others, left)))
        yield chosen


def _places(counts: Sequence[SizeDemand], prices: Prices) -> list[Sizes]:
    """Where a bucket may be: seen and measured sizes of each dimension; thinned out where they are too many."""
    axes = []
    for dim, knots in enumerate(prices.static.knots):
        known = {*knots, *(one.sizes[dim] for one in counts)}
        axes.append(sorted(size for size in known if prices.largest is None or size <= prices.largest[dim]))
    while np.prod([len(axis) for axis in axes]) > MOST_PLACES:
        longest = max(axes, key=len)
        longest[:] = sorted({*longest[::-2], longest[-1]})  # every second one, with the largest
    return list(product(*axes))


def _costs(counts: Sequence[SizeDemand], places: Sequence[Sizes], prices: Prices) -> tuple[Floats, Floats]:
    """Seconds of all calls of each size at each place, and with the dynamic program."""
    sizes = np.array([one.sizes for one in counts])
    weights = np.array([float(one.count) for one in counts])
    spots = np.array(places)
    seconds = np.array([prices.static.at(place) for place in places])
    holds = (spots[:, None, :] >= sizes[None, :, :]).all(axis=2)
    exact = (spots[:, None, :] == sizes[None, :, :]).all(axis=2)
    costs = np.where(holds, weights * (seconds[:, None] + prices.pad_s * ~exact), np.inf)
    if (dynamic := prices.dynamic) is None:
        return costs, np.full(len(counts), np.inf)
    return costs, weights * np.array([dynamic.at(one.sizes) for one in counts])


def _next(costs: Floats, others: Floats, chosen: Sequence[int]) -> int:
    """The place that saves most; where sizes are not served yet, the cheapest one that serves them all."""
    now = np.minimum(costs[list(chosen)].min(axis=0, initial=np.inf), others)
    totals = np.minimum(costs, now).sum(axis=1)
    totals[list(chosen)] = np.inf
    if not np.isfinite(totals).any():  # no single place serves all: then one that serves most
        return int(np.argmin(np.isinf(np.minimum(costs, now)).sum(axis=1)))
    return int(np.argmin(totals))


def _swapped(costs: Floats, others: Floats, chosen: list[int]) -> list[int]:
    """The same number of places after single exchanges that help."""
    best = _total(costs, others, chosen)
    for _ in range(MOST_SWAPS):
        total, swap = min(_swaps(costs, others, chosen))
        if not total < best * (1.0 - 1e-12):
            break
        best, chosen = total, [*(one for one in chosen if one != swap[0]), swap[1]]
    return chosen


def _swaps(costs: Floats, others: Floats, chosen: Sequence[int]) -> list[tuple[float, tuple[int, int]]]:
    """For each chosen place the best one instead of it."""
    found = []
    for out in chosen:
        rest = [one for one in chosen if one != out]
        now = np.minimum(costs[rest].min(axis=0, initial=np.inf), others)
        totals = np.minimum(costs, now).sum(axis=1)
        into = int(np.argmin(totals))
        found.append((float(totals[into]), (out, into)))
    return found


def _total(costs: Floats, others: Floats, chosen: Sequence[int]) -> float:
    return float(np.minimum(costs[list(chosen)].min(axis=0, initial=np.inf), others).sum())
