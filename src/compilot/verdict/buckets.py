"""Which sizes get a static program: exact, in one dimension.

In: how often each size was seen, what programs cost. Out: for every number of buckets the best ones. A size is served
by the smallest bucket that holds it or, where there is one, by the dynamic program, whichever is cheaper; the largest
size must be served, too. A dynamic programme over the sorted sizes: D[k][j] = min over i of D[k-1][i] + (cost of the
sizes after i up to j with a bucket at j). It equals trying every subset (tests). Time: buckets x sizes squared.
Not covered: two dimensions (buckets_2d.py), which number of buckets and which policy is best (policies.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compilot.records import SizeDemand
from compilot.verdict.shape_costs import Costs, Padded, Sizes, padded

Floats = NDArray[np.float64]


class Prices(NamedTuple):
    """What serves a call, and for how many seconds."""

    static: Costs
    dynamic: Costs | None = None  # None: every size needs a bucket
    pad_s: float = 0.0  # more, for a call that is smaller than its bucket
    largest: Sizes | None = None  # beyond it no program is made; None: beyond the largest measured one


class Chosen(NamedTuple):
    """Static programs, and what the whole trace takes with them; their start is not counted."""

    programs: tuple[Sizes, ...]  # smallest first
    calls_s: float


def best_buckets(counts: Sequence[SizeDemand], prices: Prices, most: int) -> list[Chosen]:
    """The best 0, 1, ... up to `most` buckets; a number with which not every size is served is left out."""
    counts = sorted(counts, key=lambda one: one.sizes)
    programs = [padded(prices.static, one.sizes, prices.largest, prices.pad_s) for one in counts]
    most = min(most, len(counts))
    last, before, after = _table(counts, programs, prices, most)
    found = []
    for number in range(most + 1):
        totals = last[number] + after
        end = int(np.argmin(totals))
        if np.isfinite(totals[end]):
            tops = _tops(before, number, end)
            found.append(Chosen(tuple(sorted({programs[top].sizes for top in tops})), float(totals[end])))
    return found


def _table(
    counts: Sequence[SizeDemand], programs: Sequence[Padded], prices: Prices, most: int
) -> tuple[Floats, NDArray[np.intp], Floats]:
    """D[k][j]: the first j sizes with k buckets, the last of them at size j. Then where D came from, and the rest.

    The rest is what sizes after j take without a bucket. A size that was not seen has weight 0, but must be served.
    """
    sizes = np.array([one.sizes[0] for one in counts])
    weights = np.array([float(one.count) for one in counts])
    others = np.full(len(counts), np.inf)
    if (dynamic := prices.dynamic) is not None:
        others = weights * np.array([dynamic.at(one.sizes) for one in counts])
    last = np.full((most + 1, len(counts) + 1), np.inf)
    last[0, 0] = 0.0
    before = np.zeros((most + 1, len(counts) + 1), dtype=np.intp)
    for top, program in enumerate(programs):
        seconds = prices.static.at(program.sizes) + prices.pad_s * (sizes[: top + 1] < program.sizes[0])
        each = np.minimum(weights[: top + 1] * seconds, others[: top + 1])
        totals = last[:-1, : top + 1] + _from_here(each)[:-1]
        before[1:, top + 1] = np.argmin(totals, axis=1)
        last[1:, top + 1] = np.min(totals, axis=1)
    return last, before, _from_here(others)


def _from_here(each: Floats) -> Floats:
    """At each place the sum of what is there and after it; one place more, where nothing is left."""
    return np.append(np.cumsum(each[::-1])[::-1], 0.0)


def _tops(before: NDArray[np.intp], number: int, end: int) -> list[int]:
    """The sizes with a bucket, of a solution that ends here."""
    tops = []
    for left in range(number, 0, -1):
        tops.append(end - 1)
        end = int(before[left, end])
    return tops
