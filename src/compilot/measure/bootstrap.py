"""The speed-up of one arm over another with a 95 % interval, from paired samples of several processes.

In: log ratios per process and pair (`log_ratios` makes them from a Race). Out: `Interval` in log space, or None; what
is saved per call (`saving`), from the same resamples.
Covered: process bias, slow drift, ragged and short processes, determinism by seed. Not covered: what the interval means
for a decision (verdict.compare), the noise margin (noise.py).

Estimator: median of the pairs of each process, then the mean over processes. The interval resamples processes, then
blocks of 10 consecutive pairs, then pairs within blocks, and takes the 2.5 and 97.5 percentiles.

What simulation says of it (heavy-tailed batch noise, autocorrelated drift, a bias per process; 200-250 repetitions):
- Drawing 3 processes from 3 understates their spread: its variance comes out at two thirds. The deviations of the
  processes from their mean are therefore widened by sqrt(P / (P - 1)), which corrects the variance for any P.
- With 3 processes the 95 % interval covers the truth 98-100 % of the time while pair noise dominates (the levels count
  pair noise more than once, so the interval is about 1.6 times wider than need be) and still 98 % when a process is
  biased as much as its median is noisy; 92 % when it is biased more than twice that, as three processes cannot tell
  their own spread. Without the widening that last figure is 90 %; resampling blocks alone covers 53-94 %.
- A t-interval over 3 processes covers 95 % but is 1.2 to 1.9 times wider still. The A/A margin on top of the interval
  makes that unnecessary: identical programs were called different in none of 4 x 200 races that stopped on width.
- With one process there is nothing to resample at that level: its bias is invisible and the interval covers only
  87-98 %. verdict.compare adds the doubt "one process".
- The median over processes instead of the mean covers as well, but is 1.2 to 1.3 times noisier with 3 processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compilot.records import Race

BLOCK = 10  # pairs; what the race measures between two shuffles, and longer than most disturbances
RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_PAIRS = 6  # with fewer, even all pairs on one side are no evidence at the 5 % level (sign test: 2 / 2**n)

LogRatios = Sequence[Sequence[float]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its 95 % interval, in log space: above 0 means the candidate is faster."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Seconds saved per call with their 95 % interval, which always contains the estimate."""

    estimate_s: float
    low_s: float
    high_s: float


def log_ratios(race: Race, candidate_column: int, baseline_column: int) -> list[list[float]]:
    """log(baseline / candidate) of each pair, per process; NaN where a sample is not a positive finite number."""
    return [
        [_log_ratio(row, candidate_column, baseline_column) for row in process.rounds] for process in race.processes
    ]


def _log_ratio(row: Sequence[float], candidate: int, baseline: int) -> float:
    over, under = row[baseline], row[candidate]
    if not (0.0 < over < math.inf and 0.0 < under < math.inf):
        return math.nan
    return math.log(over) - math.log(under)


def long_enough(per_process: LogRatios) -> list[Sequence[float]]:
    """The processes with enough pairs to be used; a process that the budget cut short says nothing yet."""
    return [pairs for pairs in per_process if len(pairs) >= MIN_PAIRS]


def hierarchical_bootstrap(
    per_process_log_ratios: LogRatios, *, block: int = BLOCK, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Estimate and 95 % interval of the log speed-up; None when it cannot be computed (too few pairs, not finite)."""
    processes = _as_arrays(per_process_log_ratios)
    if processes is None:
        return None
    draws = _resample(processes, block, resamples, np.random.default_rng(seed))
    low, high = _middle(draws)
    return Interval(estimate=_estimate(processes), low=low, high=high)


def bootstrap_draws(
    per_process_log_ratios: LogRatios, *, block: int = BLOCK, resamples: int = RESAMPLES, seed: int = 0
) -> Floats | None:
    """The resampled estimates themselves; None when they cannot be computed."""
    processes = _as_arrays(per_process_log_ratios)
    return None if processes is None else _resample(processes, block, resamples, np.random.default_rng(seed))


def saving(
    race: Race, candidate_column: int, baseline_column: int, baseline_s: float, *, seed: int = 0
) -> Saving | None:
    """What the candidate saves per call of a baseline that takes `baseline_s`; None when it cannot be computed.

    Each resample gives a speed-up and how far the baseline itself was from its usual time, both of the same processes,
    blocks and pairs: the same seed and the same number of pairs draw the same places.
    """
    ratios = _as_arrays(log_ratios(race, candidate_column, baseline_column))
    levels = _as_arrays(_log_levels(race, baseline_column))
    if ratios is None or levels is None:
        return None
    ups, drifts = (_resample(logs, BLOCK, RESAMPLES, np.random.default_rng(seed)) for logs in (ratios, levels))
    drawn = baseline_s * np.exp(drifts - _estimate(levels)) * -np.expm1(-ups)
    estimate = baseline_s * -math.expm1(-_estimate(ratios))
    low, high = _middle(drawn)
    return Saving(estimate_s=estimate, low_s=min(low, estimate), high_s=max(high, estimate))


def _log_levels(race: Race, column: int) -> list[list[float]]:
    """The log of each sample of one arm; NaN as in `log_ratios`."""
    return [[_log_ratio((1.0, row[column]), 0, 1) for row in process.rounds] for process in race.processes]


def _middle(draws: Floats) -> tuple[float, float]:
    """The ends of the middle 95 %."""
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return float(low), float(high)


def _as_arrays(per_process: LogRatios) -> list[Floats] | None:
    processes = [np.asarray(pairs, dtype=float) for pairs in long_enough(per_process)]
    # One bad sample anywhere spoils the whole: leaving it out would be outlier removal by another name.
    if not processes or not all(np.isfinite(np.asarray(pairs, dtype=float)).all() for pairs in per_process):
        return None
    return processes


def _estimate(processes: list[Floats]) -> float:
    return float(np.mean([np.median(pairs) for pairs in processes]))


def _resample(processes: list[Floats], block: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Resampled estimates: processes, then blocks, then pairs."""
    count = len(processes)
    shape = (resamples, count)
    chosen = rng.integers(0, count, shape) if count > 1 else np.zeros(shape, dtype=np.int64)
    medians = np.empty(shape)
    for index, pairs in enumerate(processes):
        slots = chosen == index
        medians[slots] = _resampled_medians(pairs, block, int(slots.sum()), rng)
    own = np.array([np.median(pairs) for pairs in processes])
    widening = math.sqrt(count / (count - 1)) - 1.0 if count > 1 else 0.0
    drawn: Floats = (medians + widening * (own[chosen] - own.mean())).mean(axis=1)
    return drawn


def _resampled_medians(pairs: Floats, block: int, draws: int, rng: np.random.Generator) -> Floats:
    """Medians of `draws` resamples of one process: blocks with replacement, then pairs within each block."""
    n = len(pairs)
    starts = np.arange(0, n, block)
    sizes = np.minimum(block, n - starts)  # the last block may be short
    picked = rng.integers(0, len(starts), (draws, len(starts)))
    within = rng.random((draws, len(starts), block)) * sizes[picked][..., None]
    where = (starts[picked][..., None] + within.astype(np.int64)).reshape(draws, -1)[:, :n]
    return np.asarray(np.median(pairs[where], axis=1), dtype=float)
