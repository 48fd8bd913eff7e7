"""Sets of whole numbers as a few ranges: what a tensor may hold.

In and out: `Numbers`, ranges in order with gaps between them; () holds nothing. Sets that would need more than `MOST`
ranges are widened, so every result holds at least what it should. `EVERY` is what nothing is known of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import torch

from compilot._ranges import Range, spread

MOST = 4  # labels need two (classes, and the one that is ignored); more are rare
Numbers = tuple[Range, ...]

EVERY: Numbers = (Range(-(2**63), 2**63 - 1),)
FLAG: Numbers = (Range(0, 1),)


def numbers(parts: Iterable[Range]) -> Numbers:
    """The ranges in order, those that meet joined; the narrowest gaps are given up where there are too many."""
    found: list[Range] = []
    for part in sorted(part for part in parts if part.low <= part.high):
        if found and part.low <= found[-1].high + 1:
            found[-1] = Range(found[-1].low, max(found[-1].high, part.high))
        else:
            found.append(part)
    while len(found) > MOST:
        at = min(range(len(found) - 1), key=lambda i: found[i + 1].low - found[i].high)
        found[at : at + 2] = [spread(found[at : at + 2])]
    return tuple(found)


def joined(*sets: Numbers) -> Numbers:
    """What is in any of them."""
    return numbers(itertools.chain(*sets))


def within(low: int, high: int) -> Callable[[Numbers], Numbers]:
    """What of a set is from low to high."""
    return lambda given: numbers(Range(max(part.low, low), min(part.high, high)) for part in given)


def without(number: int, given: Numbers) -> Numbers:
    """A set less one number."""
    return joined(within(EVERY[0].low, number - 1)(given), within(number + 1, EVERY[0].high)(given))


def holds(outer: Numbers, inner: Numbers) -> bool:
    """Whether everything in the inner set is in the outer one."""
    return all(any(o.low <= i.low and i.high <= o.high for o in outer) for i in inner)


def each(rule: Callable[..., Range], *sets: Numbers) -> Numbers:
    """The rule applied to every combination of ranges."""
    return numbers(rule(*parts) for parts in itertools.product(*sets))


def of_dtype(dtype: torch.dtype) -> Numbers:
    """All that a dtype can hold."""
    if dtype is torch.bool:
        return FLAG
    if dtype.is_floating_point or dtype.is_complex:
        return EVERY
    room = torch.iinfo(dtype)
    return (Range(max(room.min, EVERY[0].low), min(room.max, EVERY[0].high)),)


def in_dtype(given: Numbers, dtype: torch.dtype) -> Numbers:
    """A result in this dtype: what does not fit wraps around, and then it may be anything."""
    room = of_dtype(dtype)
    return given if holds(room, given) else room
