"""The total time of one arm over another's, with a 95 % interval: for requests that are not alike.

In: a Race whose rounds are requests, the same ones in the same order in every process and arm. Out: `Interval` in log
space, or None. Estimator: the log of the baseline's total over the arm's, in each process; then the mean. The interval
resamples processes, and blocks of requests, the same blocks in all processes: which requests a sample of a trace has is
chance, and the same chance for all of them. A block is at least as long as the windows in which arms take turns: what
hits an arm's turn hits all requests of the window. The deviations of the processes are widened as in bootstrap.py.
Not covered: the median of alike calls (bootstrap.py), what the interval means (verdict/replays.py).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from compilot.measure.bootstrap import CONFIDENCE, MIN_PAIRS, RESAMPLES, Interval
from compilot.records import Race

BLOCK = 4  # requests in a row, at the least: a disturbance hits neighbours
MIN_BLOCKS = 4  # fewer make no bootstrap
NOISE_QUANTILE = 0.95

Floats = NDArray[np.float64]


def total_interval(
    race: Race, candidate: int, baseline: int, *, more_s: tuple[float, float] = (0.0, 0.0), seed: int = 0
) -> Interval | None:
    """Estimate and interval of log(baseline's total / candidate's); more_s: of each call, candidate's and baseline's.

    None: too few requests, or seconds that are not positive numbers.
    """
    drawn = _drawn(race, candidate, baseline, more_s, seed)
    if drawn is None:
        return None
    estimate, draws = drawn
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(estimate=estimate, low=float(low), high=float(high))


def total_noise(race: Race, *, seed: int = 0) -> float | None:
    """95th percentile of eager's total against its own at this race's size; None without a usable second eager."""
    drawn = _drawn(race, 1, 0, (0.0, 0.0), seed) if race.with_aa else None
    return None if drawn is None else math.expm1(float(np.quantile(np.abs(drawn[1]), NOISE_QUANTILE)))


def _drawn(
    race: Race, candidate: int, baseline: int, more_s: tuple[float, float], seed: int
) -> tuple[float, Floats] | None:
    """The estimate and its resamples."""
    length = min((len(process.rounds) for process in race.processes), default=0)
    block = max(BLOCK, *(process.window for process in race.processes)) if race.processes else BLOCK
    if length < max(MIN_PAIRS, (MIN_BLOCKS - 1) * block + 1):
        return None
    own, base = (_seconds(race, column, length) for column in (candidate, baseline))
    if not (np.isfinite(own).all() and np.isfinite(base).all() and (own > 0).all() and (base > 0).all()):
        return None
    return _resampled(own + more_s[0], base + more_s[1], block, np.random.default_rng(seed))


def _seconds(race: Race, column: int, length: int) -> Floats:
    """Processes x requests."""
    rows = [[row[column] for row in process.rounds[:length]] for process in race.processes]
    return np.asarray(rows, dtype=float)


def _resampled(own: Floats, base: Floats, block: int, rng: np.random.Generator) -> tuple[float, Floats]:
    processes, length = own.shape
    starts = np.arange(0, length, block)
    own_sums, base_sums = (np.add.reduceat(one, starts, axis=1) for one in (own, base))
    blocks = rng.integers(0, len(starts), (RESAMPLES, len(starts)))
    each = np.log(base_sums[:, blocks].sum(axis=2)) - np.log(own_sums[:, blocks].sum(axis=2))  # processes x resamples
    whole = np.log(base.sum(axis=1)) - np.log(own.sum(axis=1))
    chosen = rng.integers(0, processes, (RESAMPLES, processes))
    widening = math.sqrt(processes / (processes - 1)) - 1.0 if processes > 1 else 0.0
    drawn = each[chosen, np.arange(RESAMPLES)[:, None]] + widening * (whole[chosen] - whole.mean())
    return float(whole.mean()), np.asarray(drawn.mean(axis=1), dtype=float)
