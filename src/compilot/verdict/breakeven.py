"""After how many calls has a slow first call paid for itself?

In: seconds per call and of the first call, or a race. Out: BreakEven with its 95 % interval, total times. Covered: cold
and warm starts, plans that never pay back, a gain that was not shown (it has no break-even). Not covered: which plan to
choose (rules.py). The interval is that of the saving per call: a start is measured once or a few times only.
"""

from __future__ import annotations

import math

from compilot.measure.stats import Saving, saving
from compilot.records import BreakEven, Comparison, Outcome, Race
from compilot.verdict.contenders import column_median

ROUNDING = 1e-12  # a rounding error is not another call


def total_time_s(n_calls: int, first_s: float, per_call_s: float) -> float:
    """Seconds for n calls of a fresh process, the first one included."""
    return first_s + (n_calls - 1) * per_call_s if n_calls > 0 else 0.0


def break_even_in(
    race: Race, versus: Comparison, *, cold_s: float | None, warm_s: float | None, eager_first_s: float | None
) -> BreakEven | None:
    """Of an arm that a race has shown faster than eager, else None. A first call of eager that is unknown is a call."""
    eager_s = column_median(race, 0)
    if versus.outcome is not Outcome.FASTER or eager_s is None:
        return None
    saved = saving(race, race.arms.index(versus.candidate_id), 0, eager_s)
    first_s = eager_s if eager_first_s is None else eager_first_s
    return None if saved is None else break_even(saved, cold_s, warm_s, first_s)


def break_even(saved: Saving, cold_s: float | None, warm_s: float | None, eager_first_s: float) -> BreakEven:
    """Calls until the candidate has caught up with eager after a cold and a warm start; None: never, or unknown."""
    cold, warm = (_range(first_s, eager_first_s, saved) for first_s in (cold_s, warm_s))
    return BreakEven(
        cold_calls=cold[0],
        warm_calls=warm[0],
        cold_low=cold[1],
        cold_high=cold[2],
        warm_low=warm[1],
        warm_high=warm[2],
    )


def _range(first_s: float | None, eager_first_s: float, saved: Saving) -> tuple[int | None, int | None, int | None]:
    """The calls with the saving as it is, at its best and at its worst."""
    savings = (saved.estimate_s, saved.high_s, saved.low_s)
    calls, low, high = (_calls(first_s, eager_first_s, saving_s) for saving_s in savings)
    return (None, None, None) if calls is None else (calls, low, high)


def _calls(first_s: float | None, eager_first_s: float, saving_s: float) -> int | None:
    if first_s is None or not saving_s > 0.0:  # NaN saves nothing either
        return None
    calls = (first_s - eager_first_s) / saving_s * (1.0 - ROUNDING)
    return 1 + max(0, math.ceil(calls)) if math.isfinite(calls) else None
