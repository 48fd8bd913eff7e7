"""After how many calls has a slow first call paid for itself?

In: seconds per call and of the first call. Out: BreakEven, total times. Covered: cold and warm starts, plans that never
pay back. Not covered: which plan to choose (rules.py).
"""

from __future__ import annotations

import math

from compilot.records import BreakEven


def total_time_s(n_calls: int, first_s: float, per_call_s: float) -> float:
    """Seconds for n calls of a fresh process, the first one included."""
    return first_s + (n_calls - 1) * per_call_s if n_calls > 0 else 0.0


def break_even(
    eager_s: float, candidate_s: float, cold_s: float | None, warm_s: float | None, eager_first_s: float
) -> BreakEven:
    """Calls until the candidate has caught up with eager after a cold and a warm start; None: never, or unknown."""
    saving = eager_s - candidate_s
    return BreakEven(cold_calls=_calls(cold_s, eager_first_s, saving), warm_calls=_calls(warm_s, eager_first_s, saving))


def _calls(first_s: float | None, eager_first_s: float, saving_s: float) -> int | None:
    if first_s is None or not saving_s > 0.0:  # NaN saves nothing either
        return None
    calls = (first_s - eager_first_s) / saving_s
    return 1 + max(0, math.ceil(calls)) if math.isfinite(calls) else None
