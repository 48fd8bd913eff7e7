"""Sizes that look alike: are they one size, or do they only have the same number in the example?

In: the varying dimensions of one tensor, or the places of one group. Out: their groups (same range, same example size,
same rank among such in their tensor), a second size to try, and every way to part the places of a group. Who parts
them then asks the model: two sizes that it lets differ (length of ids and of decoder ids) are sizes of their own; on
two that belong together (batch of ids and of mask) it raises. Not covered: making the calls, reading the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from compilot.records import DimRange

MOST_ALIKE = 4  # places of one look that are parted in every way: seven short calls; more of them count as one size
SMALLEST_GENERAL = 2  # torch specialises on sizes 0 and 1, and 1 is broadcast

_Place = TypeVar("_Place")


class Group(NamedTuple):
    """Dimensions that look alike. Two of one tensor (height, width) are groups of their own."""

    min: int
    max: int
    size: int  # in the example
    nth: int  # among such dimensions of the same tensor


def grouped(ranges: Mapping[int, DimRange], shape: Sequence[int]) -> dict[int, Group]:
    """The group of each varying dimension of one tensor, in the order of the ranges."""
    found: dict[int, Group] = {}
    for dim, sizes in ranges.items():
        like = Group(sizes.min, sizes.max, int(shape[dim]), 0)
        found[dim] = like._replace(nth=sum(g._replace(nth=0) == like for g in found.values()))
    return found


def another_size(group: Group) -> int | None:
    """A size next to the example's, where both are sizes that torch generalises from and nothing is broadcast."""
    if group.size < SMALLEST_GENERAL:
        return None
    if group.size - 1 >= max(group.min, SMALLEST_GENERAL):
        return group.size - 1
    return group.size + 1 if group.size < group.max else None


def partings(places: Sequence[_Place]) -> Iterator[tuple[_Place, ...]]:
    """Every way to part places in two: those that leave the first one. None for a lone place, or for too many."""
    if len(places) <= MOST_ALIKE:
        for count in range(1, len(places)):
            yield from combinations(places[1:], count)
