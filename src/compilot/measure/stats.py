"""The door to the statistics: pure, typed, deterministic given a seed; numpy only, no torch.

summary.py    one arm: median, quantiles, tails that need enough calls, far-out counts
bootstrap.py  two arms: log ratios, the hierarchical bootstrap, the saving per call
noise.py      the race: A/A noise, margin, smallest visible effect, when to stop
steady.py     the end of the warm-up and the size of a batch
"""

from __future__ import annotations

from compilot.measure.bootstrap import (
    BLOCK,
    MIN_PAIRS,
    RESAMPLES,
    Interval,
    Saving,
    bootstrap_draws,
    hierarchical_bootstrap,
    log_ratios,
    long_enough,
    saving,
)
from compilot.measure.noise import (
    FALLBACK_MARGIN,
    LOOK_RESAMPLES,
    LOOKS,
    MIN_MARGIN,
    aa_noise,
    candidate_columns,
    leads,
    margin,
    mde,
    should_stop,
)
from compilot.measure.steady import BATCH_TARGET_S, MAX_CALLS_PER_BATCH, MAX_SLOPE, calls_per_batch, is_steady
from compilot.measure.summary import (
    Summary,
    all_finite,
    calls_needed,
    count_far_out,
    median,
    percentile_or_none,
    quantile,
    summary,
)

__all__ = [
    "BATCH_TARGET_S",
    "BLOCK",
    "FALLBACK_MARGIN",
    "LOOKS",
    "LOOK_RESAMPLES",
    "MAX_CALLS_PER_BATCH",
    "MAX_SLOPE",
    "MIN_MARGIN",
    "MIN_PAIRS",
    "RESAMPLES",
    "Interval",
    "Saving",
    "Summary",
    "aa_noise",
    "all_finite",
    "bootstrap_draws",
    "calls_needed",
    "calls_per_batch",
    "candidate_columns",
    "count_far_out",
    "hierarchical_bootstrap",
    "is_steady",
    "leads",
    "log_ratios",
    "long_enough",
    "margin",
    "mde",
    "median",
    "percentile_or_none",
    "quantile",
    "saving",
    "should_stop",
    "summary",
]
