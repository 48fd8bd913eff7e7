"""The mean over models of bench/engines.py: plan over the best by hand, with an interval. Pure.

In: each model's log ratios per process and pair. Out: the geometric mean with its 95 % interval. The interval resamples
models, and within each the processes, blocks and pairs as compilot's own intervals do: it speaks of models like these,
not of these twelve alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compilot.measure.stats import bootstrap_draws, hierarchical_bootstrap
from engines_table import LogRatios, Row

AIM, ABOVE = 1.03, 1.00


class Mean(NamedTuple):
    """A geometric mean of ratios."""

    ratio: float
    low: float
    high: float
    models: int


def mean_over(models: Sequence[LogRatios], seed: int = 0) -> Mean | None:
    """None of nothing, or where a model has no interval."""
    draws = [bootstrap_draws(own, seed=seed + number) for number, own in enumerate(models)]
    intervals = [hierarchical_bootstrap(own) for own in models]
    estimates = [one.estimate for one in intervals if one is not None]
    if not draws or len(estimates) < len(models):
        return None
    table = np.stack([own for own in draws if own is not None])  # models x resamples
    picked = np.random.default_rng(seed).integers(0, len(table), table.shape)
    means = table[picked, np.arange(table.shape[1])].mean(axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return Mean(math.exp(float(np.mean(estimates))), math.exp(float(low)), math.exp(float(high)), len(models))


def lines(rows: Sequence[Row]) -> list[str]:
    """One line for each of the two columns."""
    return [
        _line("settings to the plan only", rows, [r.logs_best for r in rows]),
        _line("settings given to both", rows, [r.logs_given for r in rows]),
    ]


def _line(name: str, rows: Sequence[Row], logs: Sequence[LogRatios | None]) -> str:
    mean = mean_over([own for own in logs if own is not None])
    missing = [r.model for r, own in zip(rows, logs, strict=True) if own is None]
    if mean is None:
        return f"plan over the best by hand, {name}: not measured"
    without = f"; without {', '.join(missing)}" if missing else ""
    met = mean.ratio >= AIM and mean.low > ABOVE
    return (
        f"plan over the best by hand, {name}: {mean.ratio:.3f}x ({mean.low:.3f}-{mean.high:.3f}), geometric mean of "
        f"{mean.models} models{without}; aim at least {AIM:.2f}x with its interval above {ABOVE:.2f}: "
        f"{'met' if met else 'not met'}"
    )
