"""Location, spread and tails of one arm's samples.

In: sequences of seconds. Out: plain numbers, or None where the samples cannot carry the answer.
Covered: median, quantiles, tails that need enough calls, far-out counts. Not covered: comparing two arms.
Nothing is ever removed: far-out samples are counted, not dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FAR_OUT_IQRS = 3.0  # Tukey's "far out"
# A percentile is only quoted when even the slowest of n calls is almost surely beyond it: q**n at most 0.13 %
# (three standard deviations). That asks for 660 calls for p99, 130 for p95 and 64 for p90.
TAIL_LOG_CHANCE = 6.633


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What can honestly be said about the single calls of one arm."""

    n: int
    median_s: float
    mean_s: float
    std_s: float  # 0 for a single call
    p95_s: float | None  # None: fewer than calls_needed(0.95) calls
    p99_s: float | None


def median(samples: Sequence[float]) -> float:
    """Middle of the samples; raises ValueError when there are none."""
    return quantile(samples, 0.5)


def quantile(samples: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile; raises ValueError when there are no samples or q is outside [0, 1]."""
    if not len(samples):
        raise ValueError("no samples, so no quantile")
    return float(np.quantile(np.asarray(samples, dtype=float), q))


def calls_needed(q: float) -> int:
    """How many calls an honest quantile q needs, rounded up to an even number: 660 for p99, 130 for p95, 64 for p90."""
    if not 0.0 < q < 1.0:
        raise ValueError(f"a percentile lies between 0 and 1, not at {q}")
    tail = max(q, 1.0 - q)
    return 2 * math.ceil(TAIL_LOG_CHANCE / (-2.0 * math.log(tail)))


def percentile_or_none(samples: Sequence[float], q: float) -> float | None:
    """The quantile q, or None when there are fewer than calls_needed(q) samples or any is not finite."""
    if len(samples) < calls_needed(q) or not all_finite(samples):
        return None
    return quantile(samples, q)


def summary(call_s: Sequence[float]) -> Summary | None:
    """Median, mean, spread and tails of single calls; None for no calls or calls that are not finite."""
    if not len(call_s) or not all_finite(call_s):
        return None
    values = np.asarray(call_s, dtype=float)
    return Summary(
        n=len(values),
        median_s=float(np.median(values)),
        mean_s=float(values.mean()),
        std_s=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        p95_s=percentile_or_none(call_s, 0.95),
        p99_s=percentile_or_none(call_s, 0.99),
    )


def count_far_out(samples: Sequence[float]) -> int:
    """How many samples lie more than 3 interquartile ranges beyond the quartiles."""
    if len(samples) < 4:  # fewer have no quartiles worth the name
        return 0
    values = np.asarray(samples, dtype=float)
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FAR_OUT_IQRS * (high - low)
    return int(np.count_nonzero((values < low - reach) | (values > high + reach)))


def all_finite(samples: Sequence[float]) -> bool:
    """True when no sample is NaN or infinite."""
    return bool(np.isfinite(np.asarray(samples, dtype=float)).all())
