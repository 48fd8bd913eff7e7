"""Where numbers stand on a chart: beside their marks, and not on each other. In: marks and axes. Out: places.

Vega-Lite puts every label at the same distance of its mark, so labels of close marks would cover each other. Here each
takes the first of some places around its mark that is free. Pure. Not covered: what is drawn there (charts.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

PLACES = ((0, -16), (16, 0), (-16, 0), (0, 16), (14, -14), (-14, -14), (14, 14), (-14, 14), (0, -32), (32, 0), (0, 32))
APART = 13  # pixels between the middles of two numbers, or of a number and a mark: about a letter's height
ROUND = (1, 2, 5)  # ticks of a logarithmic axis, in each power of ten


class Axis(NamedTuple):
    """One axis: its ends in the data's unit, and its length in pixels."""

    low: float
    high: float
    length: float
    log: bool = False

    def pixel(self, value: float) -> float:
        """How far along the axis a value is."""
        low, high, value = (math.log(x) for x in (self.low, self.high, value)) if self.log else (*self[:2], value)
        return self.length * (value - low) / (high - low)

    def value(self, pixel: float) -> float:
        """What is there."""
        share = pixel / self.length
        if self.log:
            return self.low * math.exp(share * math.log(self.high / self.low))
        return self.low + share * (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values of a logarithmic axis, few enough to be read."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        leading = ROUND if len(powers) <= 5 else (1,)
        found = [float(f"{first}e{power}") for power in powers for first in leading]
        return [tick for tick in found if self.low <= tick <= self.high]


def spread(values: Sequence[float], length: float, room: float) -> Axis:
    """A linear axis with room (a share of the range) below the least and above the largest value."""
    low, high = min(values), max(values)
    wide = (high - low or abs(high) or 1.0) * room
    return Axis(low - wide, high + wide, length)


def spread_log(values: Sequence[float], length: float, factor: float = 1.6) -> Axis:
    """A logarithmic axis with a factor of room at both ends."""
    return Axis(min(values) / factor, max(values) * factor, length, log=True)


def placed(
    marks: Sequence[tuple[float, float]], x: Axis, y: Axis, others: Sequence[tuple[float, float]] = (), gap: float = 1.0
) -> list[tuple[float, float]]:
    """A place for the number of each mark, in the data's units; others: marks without one, kept free, too."""
    taken = [(x.pixel(a), y.length - y.pixel(b)) for a, b in (*marks, *others)]
    found = []
    for across, down in taken[: len(marks)]:
        spots = [(across + gap * dx, down + gap * dy) for dx, dy in PLACES]
        spots = [spot for spot in spots if _inside(spot[0], x) and _inside(spot[1], y)]
        best = max(spots or [(across, down - APART)], key=lambda spot: min(gap * APART, _nearest(spot, taken)))
        taken.append(best)
        found.append((x.value(best[0]), y.value(y.length - best[1])))
    return found


def _inside(pixel: float, axis: Axis) -> bool:
    return APART / 2 <= pixel <= axis.length - APART / 2


def _nearest(spot: tuple[float, float], taken: Sequence[tuple[float, float]]) -> float:
    return min((math.dist(spot, other) for other in taken), default=math.inf)
