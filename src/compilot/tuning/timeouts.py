"""Candidates that the budget did not reach: who ran out of time, who is tried again, and which budget to advise.

In: trials, what the search would still ask for, the time that a run has. Out: whether a resumed run tries a candidate
again; the verdict with what was not reached. Covered: trials whose own time was up because the budget was short, and
candidates that nobody tried. Not covered: a step that took longer than its own limit (trials/limits.py), since a longer
budget does not change that; how long a trial may take (budget.py); the words (verdict/unreached.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from compilot.records import Candidate, Decision, NotReached, State, Trial, Verdict
from compilot.tuning.budget import Budget
from compilot.verdict.decide import RAISE_BUDGET
from compilot.verdict.unreached import TRY_AGAIN_FROM, clause, make_not_reached


def ran_out(trial: Trial) -> bool:
    """Whether it was ended because its time was up; one that was paired with eager failed later, in a race."""
    return trial.state is State.TIMED_OUT and not trial.screening and 0.0 < trial.limit_s <= trial.wall_s


def is_worth_another(trial: Trial, budget_s: float) -> bool:
    """Whether a run with this budget tries it again."""
    return ran_out(trial) and budget_s >= TRY_AGAIN_FROM * trial.wall_s


def not_reached(trials: Iterable[Trial], left: Sequence[Candidate], spent_s: float) -> NotReached | None:
    """What a run that had this long did not get to; None where it got to everything."""
    tried = list(trials)
    short = [trial for trial in tried if ran_out(trial)]
    return make_not_reached(short, left, [trial for trial in tried if not ran_out(trial)], spent_s)


def advised(verdict: Verdict, trials: Iterable[Trial], left: Sequence[Candidate], budget: Budget) -> Verdict:
    """The verdict with what was not reached; where eager is kept its reason names the budget, too."""
    missed = not_reached(trials, left, max(budget.seconds, budget.elapsed_s))
    if missed is None:
        return verdict
    because = verdict.because
    if verdict.decision is Decision.KEEP_EAGER:
        because = f"{because.removesuffix(f'; {RAISE_BUDGET}')}; {clause(missed)}"  # that has a figure
    return msgspec.structs.replace(verdict, because=because, not_reached=missed)
