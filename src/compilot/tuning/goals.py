"""What a plan is wanted for, checked before any work.

In: what the user gave. Out: a Goal, or InputError in one sentence.
Covered: options that do not go together; a resumed run keeps what it was asked for as far as it still makes sense.
Not covered: who wins under a goal (verdict/rules.py).
"""

from __future__ import annotations

from compilot._choices import unknown
from compilot.errors import InputError
from compilot.records import Goal, Objective

MOST_CALLERS = 256  # each is a thread with a stack and, in many engines, helpers of its own
BY_TOTAL_TIME = (Objective.LATENCY, Objective.THROUGHPUT)  # what a number of calls can be added up for


def make_goal(
    objective: Objective | str | None = None,
    horizon: int | None = None,
    concurrency: int | None = None,
    *,
    before: Goal | None = None,
) -> Goal:
    """The goal; where something is not given, that of an earlier part of the run, as far as it fits."""
    before = before or Goal()
    wanted = before.objective if objective is None else _known(objective)
    if horizon is not None:
        _refuse_horizon(horizon, wanted)
    if concurrency is not None:
        _refuse_callers(concurrency, wanted)
    callers = before.concurrency if concurrency is None else concurrency
    calls = before.horizon_calls if horizon is None else horizon
    return Goal(
        objective=wanted,
        horizon_calls=calls if wanted in BY_TOTAL_TIME else None,
        concurrency=callers if wanted is Objective.THROUGHPUT else 1,
    )


def _known(objective: Objective | str) -> Objective:
    try:
        return Objective(objective)
    except ValueError:
        raise unknown("objective", str(objective), [o.value for o in Objective]) from None


def _refuse_horizon(calls: int, objective: Objective) -> None:
    if objective not in BY_TOTAL_TIME:
        raise InputError(
            f"a horizon counts total time, which the objective {objective} does not look at; leave out the horizon, "
            f"or choose {' or '.join(BY_TOTAL_TIME)}."
        )
    if _is_odd(calls) or calls < 1:
        raise InputError(f"the horizon is the number of calls that a process will make, at least 1; not {calls!r}.")


def _refuse_callers(callers: int, objective: Objective) -> None:
    if objective is not Objective.THROUGHPUT:
        raise InputError(
            f"callers at the same time (concurrency) are for the objective throughput, not for {objective}; "
            "choose the objective throughput, or leave out the concurrency."
        )
    if _is_odd(callers) or not 1 <= callers <= MOST_CALLERS:
        raise InputError(
            f"concurrency is the number of callers at the same time, from 1 to {MOST_CALLERS}; not {callers!r}."
        )


def _is_odd(number: object) -> bool:
    """True and 2.5 are no counts; Python callers may pass anything."""
    return isinstance(number, bool) or not isinstance(number, int)
