"""How long a loss curve is. In: seconds of a step, and what may be spent. Out: a number of steps. Pure; no torch."""

from __future__ import annotations

STEPS = 50
FEWEST_STEPS = 10  # of a model so slow that 50 would not fit into the time
NUDGES = 3  # runs of eager from weights one rounding away
CURVE_RUNS = NUDGES + 2 + 3  # eager's as it is and with other threads, too; float64 takes as long as three
SEEDS = 6  # where random numbers are drawn


def affordable_steps(step_s: float, limit_s: float) -> int:
    """So many that all of eager's runs fit into the time: 50, or fewer of a slow model."""
    return max(FEWEST_STEPS, min(STEPS, int(limit_s / max(CURVE_RUNS * step_s, 1e-9))))
