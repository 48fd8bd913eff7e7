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
NOISE_SHARE = 2.0  # a slope counts when it is more than two of its own standard errors
MAX_POINTS = 60  # Theil-Sen looks at every pair of points; longer windows are first reduced to medians of chunks
BATCH_TARGET_S = 0.020
MAX_CALLS_PER_BATCH = 1_000_000


def is_steady(call_times: Sequence[float]) -> tuple[bool, float | None]:
    """Steady after 3 calls and 1 s, when the last third shows no slope above 2 %; with the slope seen, None if unknown.

    The slope is Theil-Sen's over the last third of the calls (never fewer than 3), as relative change from its first to
    its last call. A slope counts only when it exceeds twice the standard error that the scatter around it gives: on a
    machine where calls scatter by 18 %, three calls of a slow model nearly always "slope" by more than 2 %, and that
    says nothing. So a slow model is called steady unless its few calls fall or rise in line; a fast one has hundreds of
    calls within the second and is held to the 2 % in earnest.
    """
    values = np.asarray(call_times, dtype=float)
    if len(values) < MIN_CALLS or not np.isfinite(values).all() or np.median(values) <= 0.0:
        return False, None
    slope, error = _slope(_points(values[-max(MIN_CALLS, len(values) // 3) :]))
    level = abs(slope) <= MAX_SLOPE or abs(slope) <= NOISE_SHARE * error
    return bool(values.sum() >= MIN_WALL_S and level), slope


def _points(window: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(window) <= MAX_POINTS:
        return window
    return np.array([np.median(chunk) for chunk in np.array_split(window, MAX_POINTS)])


def _slope(points: NDArray[np.float64]) -> tuple[float, float]:
    """Theil-Sen change over the points and its standard error, both relative to their median."""
    n = len(points)
    first, second = np.triu_indices(n, k=1)
    at = np.arange(n)
    step = float(np.median((points[second] - points[first]) / (second - first)))
    rest = points - step * at
    scatter = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))  # standard deviation, by way of the MAD
    centre = float(np.median(points))
    return step * (n - 1) / centre, scatter * math.sqrt(12.0 / n) / centre


def calls_per_batch(call_s_samples: Sequence[float], target_s: float = BATCH_TARGET_S) -> int:
    """Calls that together last at least `target_s`, judged by the quicker calls: rather longer than shorter."""
    values = np.asarray(call_s_samples, dtype=float)
    values = values[np.isfinite(values) & (values > 0.0)]
    if not len(values):
        return 1
    return max(1, min(MAX_CALLS_PER_BATCH, math.ceil(target_s / float(np.quantile(values, 0.25)))))
