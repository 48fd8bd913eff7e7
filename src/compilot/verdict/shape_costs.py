"""What a call costs at a size that nobody measured. In: measured points. Out: seconds at any size.

One dimension: a straight line between neighbours; two (batch and length): straight in each dimension on the grid of the
measured sizes. Above the largest measured size the last line goes on, but never downwards; below the smallest one the
cost stays as it is there.
`program_cost`: from a candidate's trial and the seconds of its calls at each size.
`padded`: a program for a larger size may be the faster one, so L*(s) is the least L(t) of all t >= s; it never falls.
Not covered: measuring (trials/), which sizes to measure (sizes_to_measure.py).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from compilot.errors import InputError
from compilot.records import CostPoint, ProgramCost, Trial

Sizes = tuple[int, ...]

READ_S_PER_BYTE = 1e-9  # 1 GB/s: files that a start reads


class Costs:
    """Seconds of a call at any size, from the measured ones."""

    def __init__(self, points: Sequence[CostPoint]) -> None:
        if not points:
            raise InputError("a cost curve needs at least one measured size.")
        self._seconds = {point.sizes: point.call_s for point in points}
        if not all(math.isfinite(s) and s > 0 for s in self._seconds.values()):
            raise InputError("every measured size needs a time above zero.")
        dims = {len(sizes) for sizes in self._seconds}
        if len(dims) != 1:
            raise InputError("all measured sizes must have the same number of dimensions.")
        self.knots = tuple(sorted(set(axis)) for axis in zip(*self._seconds, strict=True))
        missing = [place for place in product(*self.knots) if place not in self._seconds]
        if missing:
            raise InputError(f"measured sizes must be a grid; there is none at {'x'.join(map(str, missing[0]))}.")

    def at(self, sizes: Sizes) -> float:
        """Seconds of a call of this size."""
        inside = tuple(min(size, axis[-1]) for axis, size in zip(self.knots, sizes, strict=True))
        found = self._straight(inside)
        return found if inside == sizes else max(found, self._straight(sizes))

    def _straight(self, sizes: Sizes) -> float:
        corners: dict[Sizes, float] = {(): 1.0}  # measured neighbours, and how much of each
        for axis, size in zip(self.knots, sizes, strict=True):
            parts = _neighbours(axis, size)
            corners = {(*place, knot): share * part for place, share in corners.items() for knot, part in parts}
        return sum(share * self._seconds[place] for place, share in corners.items())


def program_cost(trial: Trial, samples: Mapping[Sizes, Sequence[float]]) -> ProgramCost:
    """What a candidate's program costs: the median of its calls at each size, its cold start, its files."""
    points = [CostPoint(sizes=sizes, call_s=statistics.median(own)) for sizes, own in sorted(samples.items()) if own]
    return ProgramCost(
        points=tuple(points),
        build_s=trial.measurement.cold_s if trial.measurement is not None else 0.0,
        size_bytes=sum(file.size_bytes for file in trial.artifacts),
        memory_bytes=memory_of(trial),
    )


def memory_of(trial: Trial) -> int:
    """Of a process with its program; 0: not known."""
    return trial.measurement.steady_rss_bytes if trial.measurement is not None else 0


def start_of(build_s: float, size_bytes: int) -> float:
    """Seconds until programs are there: building them, and reading their files."""
    return build_s + size_bytes * READ_S_PER_BYTE


class Padded(NamedTuple):
    """The program that serves a size best, among those for this size and larger ones."""

    sizes: Sizes  # of the program
    call_s: float


def padded(costs: Costs, sizes: Sizes, largest: Sizes | None = None, pad_s: float = 0.0) -> Padded:
    """L*(sizes): the least cost of a program at least this large; largest: beyond it none is made.

    Between measured sizes the cost is straight, so that the least is at the size itself or at a measured one.
    """
    limit = largest or tuple(axis[-1] for axis in costs.knots)
    axes = [
        [size, *(knot for knot in axis if size < knot <= top)]
        for axis, size, top in zip(costs.knots, sizes, limit, strict=True)
    ]
    found = [(costs.at(place) + (pad_s if place != sizes else 0.0), place) for place in product(*axes)]
    call_s, place = min(found)
    return Padded(place, call_s)


def _neighbours(axis: Sequence[int], size: int) -> tuple[tuple[int, float], ...]:
    """The measured sizes that one is between, each with its share."""
    if len(axis) == 1 or size <= axis[0]:
        return ((axis[0], 1.0),)
    right = min(bisect_right(axis, size), len(axis) - 1)
    low, high = axis[right - 1], axis[right]
    part = (size - low) / (high - low)  # above 1 beyond the last one
    return ((low, 1.0 - part), (high, part)) if part else ((low, 1.0),)
