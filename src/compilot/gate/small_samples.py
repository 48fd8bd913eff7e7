"""Few samples of two sides: is the head's figure larger? In: one figure per process. Out: change, interval, p.

For what a process says only once: its start, its memory, the CPU seconds of its build. Student's t on the logarithms;
the spread is never taken for less than a floor, since three figures may agree by luck. Pure; numpy is not needed.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
FEWEST = 2
USUAL_METRICS = (
    7  # that Holm's correction is over: latency, start and memory of two arms, and what one of them compiles
)
RACE_POWER = math.sqrt(0.8)  # of each of two races, so that both show a change in 80 % of the checks


class LogEffect(NamedTuple):
    """log(head / base) with its interval, and how surprising it is if nothing exceeds the margin."""

    estimate: float
    low: float
    high: float
    p: float
    freedom: int  # degrees


def paired(base: Sequence[float], head: Sequence[float], *, margin: float, floor: float) -> LogEffect | None:
    """Figures of the same sets of processes; None where there are too few or one is not positive."""
    if len(base) != len(head) or not _usable(base, head):
        return None
    logs = [math.log(after) - math.log(before) for before, after in zip(base, head, strict=True)]
    spread = max(statistics.stdev(logs), floor)
    return _effect(statistics.fmean(logs), spread / math.sqrt(len(logs)), len(logs) - 1, margin)


def unpaired(base: Sequence[float], head: Sequence[float], *, margin: float, floor: float) -> LogEffect | None:
    """Figures of different days."""
    if not _usable(base, head):
        return None
    before, after = [math.log(one) for one in base], [math.log(one) for one in head]
    freedom = len(before) + len(after) - 2
    squares = sum((one - statistics.fmean(group)) ** 2 for group in (before, after) for one in group)
    spread = max(math.sqrt(squares / freedom), floor)
    error = spread * math.sqrt(1.0 / len(before) + 1.0 / len(after))
    return _effect(statistics.fmean(after) - statistics.fmean(before), error, freedom, margin)


def _usable(base: Sequence[float], head: Sequence[float]) -> bool:
    return min(len(base), len(head)) >= FEWEST and all(0.0 < one < math.inf for one in (*base, *head))


def _effect(estimate: float, error: float, freedom: int, margin: float) -> LogEffect:
    half = t_quantile((1.0 + CONFIDENCE) / 2, freedom) * error
    p = 1.0 - t_cdf((estimate - math.log1p(margin)) / error, freedom)
    return LogEffect(estimate, estimate - half, estimate + half, p, freedom)


@functools.cache
def two_race_share(freedom: int) -> float:
    """How many half-widths beyond the margin a change must be to come out red in 80 % of the checks.

    It has to be significant among all metrics, and so in two races.
    """
    significant = t_quantile(1.0 - (1.0 - CONFIDENCE) / USUAL_METRICS, freedom)
    return (significant + t_quantile(RACE_POWER, freedom)) / t_quantile((1.0 + CONFIDENCE) / 2, freedom)


def t_cdf(t: float, freedom: int) -> float:
    """Student's distribution, exact for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        return 0.5 + (angle + sine * total) / math.pi
    term, total = 1.0, 0.0
    for k in range(1, freedom // 2 + 1):
        total += term
        term *= cosine * cosine * (2 * k - 1) / (2 * k)
    return 0.5 + sine * total / 2


def t_quantile(share: float, freedom: int) -> float:
    """Where the distribution reaches a share above one half."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < share else (low, middle)
    return high


def holm(p_values: Sequence[float], alpha: float = 1.0 - CONFIDENCE) -> list[bool]:
    """Which of several hypotheses are rejected so that any false rejection has at most the chance alpha."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected
