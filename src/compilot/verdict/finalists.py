"""Who goes from the screening into the final?

In: trials with their paired screening samples. Out: candidate ids, best first. Covered: only ok ones, never eager,
never the same program twice, none clearly slower than eager unless it is the only one. Not covered: the verdict itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compilot.measure.stats import MIN_MARGIN, Interval, hierarchical_bootstrap, log_ratios, median
from compilot.records import ProcessSamples, Race, State, Trial

FINALISTS = 3


def choose_finalists(trials: Sequence[Trial], limit: int = FINALISTS) -> list[str]:
    """Ids of the most promising candidates; the best one always, so that a verdict can be given."""
    able = [t for t in trials if t.state is State.OK and not t.candidate.is_eager and t.same_as is None]
    ranked = sorted({t.candidate.id: t for t in able}.values(), key=_score, reverse=True)
    kept = ranked[:1] + [trial for trial in ranked[1:] if not _clearly_slower(trial)]
    return [trial.candidate.id for trial in kept[: max(1, limit)]]


def _pairs(trial: Trial) -> list[float]:
    rounds = ProcessSamples(rounds=trial.screening)
    return log_ratios(Race(arms=("eager", "candidate"), with_aa=False, processes=(rounds,)), 1, 0)[0]


def _score(trial: Trial) -> float:
    """Median log ratio; a candidate without usable pairs ranks as "no faster than eager"."""
    pairs = [pair for pair in _pairs(trial) if math.isfinite(pair)]
    return median(pairs) if pairs else 0.0


def _clearly_slower(trial: Trial) -> bool:
    interval: Interval | None = hierarchical_bootstrap([_pairs(trial)])
    return interval is not None and interval.high < math.log(1.0 - MIN_MARGIN)
