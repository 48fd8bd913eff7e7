"""When is a callable warm, and how many calls make one batch?

In: durations of calls in the order they were made. Out: steady or not with the slope seen; calls per batch.
Covered: noise, a few calls of a slow model, hundreds of thousands of calls of a fast one. Not covered: whether
something was compiled meanwhile (the worker sees that), giving up (the worker's budget; then the doubt is "unsteady").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_CALLS = 3
MIN_WALL_S = 1.0
MAX_SLOPE = 0.02  # relative change over the last third
FEW_POINTS = 10  # fewer have no usable median absolute deviation: a line through three points leaves two on it
MAX_POINTS = 60  # Theil-Sen looks at every pair of points; longer windows are first reduced to medians of chunks
BATCH_TARGET_S = 0.020
MAX_CALLS_PER_BATCH = 1_000_000


def is_steady(call_times: Sequence[float]) -> tuple[bool, float | None]:
    """Steady after 3 calls and 1 s, when the last third shows no slope above 2 %; with the slope seen, None if unknown.

    The slope is Theil-Sen's over the last third of the calls (never fewer than 3), as relative change from its first to
    its last call. A slope counts only when it exceeds two standard errors of the scatter around it (four for 3 calls):
    on a machine where calls scatter by 18 %, three calls of a slow model nearly always "slope" by more than 2 %, and
    that says nothing. So a slow model is called steady unless its few calls fall or rise in line; a fast one has
    hundreds of calls within the second and is held to the 2 % in earnest.
    """
    values = np.asarray(call_times, dtype=float)
    if len(values) < MIN_CALLS or not np.isfinite(values).all() or np.median(values) <= 0.0:
        return False, None
    slope, error = _slope(_points(values[-max(MIN_CALLS, len(values) // 3) :]))
    level = abs(slope) <= MAX_SLOPE or abs(slope) <= error
    return bool(values.sum() >= MIN_WALL_S and level), slope


def _points(window: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(window) <= MAX_POINTS:
        return window
    return np.array([np.median(chunk) for chunk in np.array_split(window, MAX_POINTS)])


def _slope(points: NDArray[np.float64]) -> tuple[float, float]:
    """Theil-Sen change over the points and how much noise alone could make it, both relative to their median."""
    n = len(points)
    first, second = np.triu_indices(n, k=1)
    at = np.arange(n)
    step = float(np.median((points[second] - points[first]) / (second - first)))
    errors = 2.0 + 2.0 / (n - 2)  # few points tell their own scatter badly, so they must show more
    noise = errors * _scatter(points - step * at) * math.sqrt(12.0 / n)
    centre = float(np.median(points))
    return step * (n - 1) / centre, noise / centre


def _scatter(rest: NDArray[np.float64]) -> float:
    """Standard deviation around the line, robust where there are enough points for it."""
    off = rest - np.median(rest)
    if len(off) < FEW_POINTS:
        return math.sqrt(float((off**2).sum()) / (len(off) - 2))
    return 1.4826 * float(np.median(np.abs(off)))


def calls_per_batch(call_s_samples: Sequence[float], target_s: float = BATCH_TARGET_S) -> int:
    """Calls that together last at least `target_s`, judged by the quicker calls: rather longer than shorter."""
    values = np.asarray(call_s_samples, dtype=float)
    values = values[np.isfinite(values) & (values > 0.0)]
    if not len(values):
        return 1
    return max(1, min(MAX_CALLS_PER_BATCH, math.ceil(target_s / float(np.quantile(values, 0.25)))))
