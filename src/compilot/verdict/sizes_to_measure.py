"""Which sizes are worth measuring. In: counts of sizes, declared ranges. Out: about ten per dimension, in order.

The smallest and the largest declared size, so that nothing has to be guessed beyond them; 1 and 2 where they are
allowed (programs for 1 are special) and one more still has room; then quantiles of the trace by count. Without a trace:
evenly on a log scale. In two dimensions the sizes are a grid, so there are fewer of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.errors import InputError
from compilot.records import DimRange, SizeDemand

IN_ONE_DIMENSION = 10
IN_TWO = 5  # of each: 25 places
SPECIAL = (1, 2)  # torch makes programs of their own for 1, and 2 is the first that is general


def sizes_to_measure(
    ranges: Sequence[DimRange], counts: Sequence[SizeDemand] = (), most: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """For each dimension the sizes to measure, smallest first; most: of each dimension, two at the least."""
    if any(len(one.sizes) != len(ranges) for one in counts):
        raise InputError("all sizes of a trace must have one number for each declared dimension.")
    most = most or (IN_ONE_DIMENSION if len(ranges) == 1 else IN_TWO)
    return tuple(
        _of_one(allowed, [(one.sizes[dim], one.count) for one in counts], most) for dim, allowed in enumerate(ranges)
    )


def _of_one(allowed: DimRange, seen: Sequence[tuple[int, int]], most: int) -> tuple[int, ...]:
    inside = sorted((size, number) for size, number in seen if allowed.min <= size <= allowed.max and number > 0)
    must = {allowed.min, allowed.max}
    for size in SPECIAL:
        if allowed.min <= size <= allowed.max and len(must) + 1 < most:
            must.add(size)
    room = max(0, most - len(must))
    found = {size for size, _ in inside} - must
    if not inside:
        return tuple(sorted({*must, *_spread(allowed, room)}))
    if len(found) <= room:
        return tuple(sorted({*must, *found}))
    return tuple(sorted({*must, *_quantiles(inside, room)}))


def _quantiles(seen: Sequence[tuple[int, int]], number: int) -> list[int]:
    """Sizes below which equal shares of the calls are; `seen` is in order."""
    total = sum(count for _, count in seen)
    wanted = [(turn + 0.5) / number * total for turn in range(number)]
    found, below = [], 0
    for size, count in seen:
        below += count
        while wanted and wanted[0] <= below:
            found.append(size)
            wanted.pop(0)
    return found


def _spread(allowed: DimRange, number: int) -> list[int]:
    """Sizes between the ends, each larger than the one before by the same factor."""
    low = max(1, allowed.min)
    ratio = allowed.max / low
    return [round(low * ratio ** ((turn + 1) / (number + 1))) for turn in range(number)]
