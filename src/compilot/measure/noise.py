"""How noisy was this race, and has it run long enough?

In: a Race, whose columns 0 and 1 are both eager where `with_aa` is set. Out: A/A noise, margin, smallest visible
effect, and whether to stop. Covered: judging the race by its own A/A arm at its own number of processes and
pairs; fixed looks. Not covered: who is faster (verdict.compare).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compilot.measure.bootstrap import bootstrap_draws, hierarchical_bootstrap, log_ratios
from compilot.records import Race

MIN_MARGIN = 0.01  # smaller differences do not matter in practice
FALLBACK_MARGIN = 0.03  # where no A/A arm ran: above what 3 x 160 pairs scatter on a busy two-core machine
LOOKS = (20, 40, 80, 160, 320)  # pairs per process; looking at every pair would find "significance" in noise
NOISE_QUANTILE = 0.95
# A true effect at margin + half-width is found half the time; 0.84 standard errors more make that 80 %,
# the usual meaning of "minimum detectable effect". A half-width is 1.96 standard errors.
POWER_SHARE = 1.0 + 0.84 / 1.96
LOOK_RESAMPLES = 1000  # a look needs the width only


def aa_noise(race: Race, *, seed: int = 0) -> float | None:
    """95th percentile of the relative A/A difference at this race's own size; None without a usable A/A arm."""
    if not race.with_aa:
        return None
    draws = bootstrap_draws(log_ratios(race, 1, 0), seed=seed)
    if draws is None:
        return None
    return math.expm1(float(np.quantile(np.abs(draws), NOISE_QUANTILE)))


def margin(race: Race, *, fallback: float = FALLBACK_MARGIN, seed: int = 0) -> float:
    """Relative differences below this are not called differences: A/A noise, at least 1 %."""
    noise = aa_noise(race, seed=seed)
    return max(MIN_MARGIN, fallback if noise is None else noise)


def mde(half_width: float, margin: float) -> float:
    """Smallest relative effect that a race with this log half-width and margin shows about four times out of five.

    Simulated (5 settings of noise, 600 repetitions each): 80-86 %. An effect of twice the margin is always found where
    the 1 % floor is the margin, but only 56-69 % of the time where A/A noise is: noise then counts twice, in the margin
    and in the interval, and both shrink together, so that more pairs lower the margin but do not raise that rate.
    """
    # A ratio is shown when ratio / exp(half_width) > 1 + margin, so the two multiply.
    return margin + (1.0 + margin) * math.expm1(POWER_SHARE * half_width)


def candidate_columns(race: Race) -> list[int]:
    """The columns of a race that are neither eager nor its A/A twin."""
    return list(range(2 if race.with_aa else 1, len(race.arms)))


def leads(race: Race, columns: Sequence[int]) -> bool:
    """Whether the fastest of these columns is shown faster than every other one, by more than the race's margin."""
    if len(columns) < 2:
        return False
    mids = {column: float(np.nanmedian(np.concatenate(log_ratios(race, column, 0)))) for column in columns}
    first, beyond = max(columns, key=lambda column: mids[column]), math.log1p(margin(race))
    others = [column for column in columns if column != first]
    found = [hierarchical_bootstrap(log_ratios(race, first, c), resamples=LOOK_RESAMPLES) for c in others]
    return all(interval is not None and interval.low > beyond for interval in found)


def should_stop(race_so_far: Race, columns: Sequence[int], margin: float) -> tuple[bool, str]:
    """Stop only at a look, when every column's interval against column 0 is at most `margin` on either side.

    `margin` is the precision wanted, fixed beforehand: MIN_MARGIN, or the margin of an earlier A/A run. The margin
    of the race so far is a poor choice: it shrinks in step with the interval, so that the first look mostly does.
    """
    pairs = min((len(process.rounds) for process in race_so_far.processes), default=0)
    if pairs >= LOOKS[-1]:
        return True, f"last look: {pairs} pairs"
    if pairs not in LOOKS:
        return False, f"next look at {next(look for look in LOOKS if look > pairs)} pairs"
    widest = _widest(race_so_far, columns)
    if widest is None:
        return False, f"no interval at {pairs} pairs"
    relation = "within" if widest <= margin else "above"
    return widest <= margin, f"half-width {widest:.1%} at {pairs} pairs, {relation} {margin:.1%}".replace("%", " %")


def _widest(race: Race, columns: Sequence[int]) -> float | None:
    """Largest half-width over the columns, None when one cannot be computed."""
    widths = []
    for column in columns:
        interval = hierarchical_bootstrap(log_ratios(race, column, 0), resamples=LOOK_RESAMPLES)
        if interval is None:
            return None
        widths.append(interval.half_width)
    return max(widths, default=None)
