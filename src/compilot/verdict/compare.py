"""Is one arm of a race faster than another?

In: a Race and two arms. Out: a Comparison with ratio, 95 % interval, margin, outcome and doubts.
Covered: faster only if the whole interval is above 1 + margin, slower only if below 1 - margin; what cannot be computed
is undecided with ratio 1, never faster. Not covered: what to do about it (decide.py).
"""

from __future__ import annotations

import math

from compilot.measure.stats import (
    FALLBACK_MARGIN,
    MIN_MARGIN,
    Interval,
    aa_noise,
    count_far_out,
    hierarchical_bootstrap,
    log_ratios,
    long_enough,
    mde,
)
from compilot.records import Comparison, Outcome, Race
from compilot.verdict.words import count


def compare(
    race: Race, candidate_id: str, baseline_id: str, *, seed: int = 0, fallback_margin: float = FALLBACK_MARGIN
) -> Comparison:
    """Speed-up of one arm over another; `fallback_margin` is the noise assumed where the race had no A/A arm.

    The baseline is the first column of its id. Eager against itself compares the two columns of the A/A arm.
    """
    baseline = race.arms.index(baseline_id)
    candidate = race.arms.index(candidate_id, baseline + 1 if candidate_id == baseline_id else 0)
    return compare_columns(race, candidate, baseline, seed=seed, fallback_margin=fallback_margin)


def compare_columns(
    race: Race,
    candidate_column: int,
    baseline_column: int,
    *,
    seed: int = 0,
    fallback_margin: float = FALLBACK_MARGIN,
) -> Comparison:
    """The same by column, for races in which an id stands more than twice."""
    per_process = log_ratios(race, candidate_column, baseline_column)
    noise = aa_noise(race, seed=seed)
    margin = max(MIN_MARGIN, fallback_margin if noise is None else noise)
    interval = hierarchical_bootstrap(per_process, seed=seed)
    used = long_enough(per_process)
    ratio, low, high = _ratios(interval)
    return Comparison(
        candidate_id=race.arms[candidate_column],
        baseline_id=race.arms[baseline_column],
        ratio=ratio,
        low=low,
        high=high,
        outcome=outcome_of(low, high, margin) if interval else Outcome.UNDECIDED,
        margin=margin,
        mde=mde(interval.half_width if interval else 0.0, margin),
        aa_noise=noise or 0.0,
        processes=len(used),
        pairs=min((len(pairs) for pairs in used), default=0),
        all_pairs=sum(len(pairs) for pairs in used),
        far_out=sum(count_far_out(pairs) for pairs in used) if interval else 0,
        doubts=race_doubts(race, len(used), noise, interval),
    )


def _ratios(interval: Interval | None) -> tuple[float, float, float]:
    if interval is None:
        return 1.0, 1.0, 1.0  # JSON has no NaN; the outcome says that this is no measurement
    return math.exp(interval.estimate), math.exp(interval.low), math.exp(interval.high)


def outcome_of(low: float, high: float, margin: float) -> Outcome:
    """What an interval of a ratio shows."""
    if low > 1.0 + margin:
        return Outcome.FASTER
    return Outcome.SLOWER if high < 1.0 - margin else Outcome.NO_DIFFERENCE


def race_doubts(race: Race, used: int, noise: float | None, interval: Interval | None) -> tuple[str, ...]:
    """Everything that makes the figures less than they seem."""
    timeouts = sum(process.settle_timeouts for process in race.processes)
    doubts = {
        "no interval: too few pairs or samples that are not positive numbers": interval is None,
        "one process": used == 1,
        f"{count(len(race.processes) - used, 'process', 'es')} too short to use": 0 < used < len(race.processes),
        "no A/A arm: margin assumed": noise is None,
        f"settle timeouts: {timeouts}": timeouts > 0,
        race.load: bool(race.load),
    }
    return tuple(text for text, holds in doubts.items() if holds)
