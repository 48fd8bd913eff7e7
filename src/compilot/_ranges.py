"""Ranges of whole numbers: what both analyses of integers share (engines/openvino/ranges.py, indices/).

In: ranges. Out: the range that holds every result. `KEEP` names torch's operators, without their overloads, that only
move, leave out, repeat or round the numbers of their first argument. Not covered: rules of other operators; how exact
they must be is for each analysis to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


def names(text: str) -> frozenset[str]:
    """Words as a set."""
    return frozenset(text.split())


KEEP = names(
    "view _unsafe_view reshape view_as reshape_as expand expand_as broadcast_to slice select unsqueeze squeeze permute "
    "transpose t clone alias detach contiguous lift_fresh_copy flip roll repeat tile repeat_interleave index gather "
    "index_select take_along_dim narrow flatten unflatten movedim split split_with_sizes chunk unbind diagonal unfold "
    "to _to_copy type_as long abs floor ceil round trunc amax amin masked_select getitem"
)  # abs: of ranges that are as wide below zero as above


class Range(NamedTuple):
    """Whole numbers from low to high."""

    low: int
    high: int


def spread(parts: Sequence[Range]) -> Range:
    """The range that holds them all."""
    return Range(min(part.low for part in parts), max(part.high for part in parts))


def between(*ends: int) -> Range:
    """From the smallest to the largest."""
    return Range(min(ends), max(ends))
