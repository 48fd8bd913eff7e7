"""Candidates that only ran out of time: who is tried again, and which budget to advise.

In: trials, the time that a run has. Out: whether a resumed run tries a candidate again; one sentence of advice.
Covered: trials whose own time was up, because the budget was short. Not covered: a step that took longer than its own
limit (trials/limits.py), since a longer budget does not change that; how long a trial may take (budget.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from compilot.progress import Observer
from compilot.records import Decision, State, Trial, Verdict
from compilot.verdict.words import count

TRY_AGAIN_FROM = 2.0  # times what it had: with a little more it would most likely end the same way
LEAST_TRIAL_S = 60.0  # that is advised for each: most builds take 10 to 40 s, and checks and timing follow


def ran_out(trial: Trial) -> bool:
    """Whether it was ended because its time was up; one that was paired with eager failed later, in a race."""
    return trial.state is State.TIMED_OUT and not trial.screening and 0.0 < trial.limit_s <= trial.wall_s


def is_worth_another(trial: Trial, budget_s: float) -> bool:
    """Whether a run with this budget tries it again."""
    return ran_out(trial) and budget_s >= TRY_AGAIN_FROM * trial.wall_s


def advice(trials: Iterable[Trial], elapsed_s: float) -> str:
    """What to do about the trials that ran out of time in a run that took this long; "" where there are none."""
    short = [trial for trial in trials if ran_out(trial)]
    if not short:
        return ""
    more_s = sum(max(LEAST_TRIAL_S, TRY_AGAIN_FROM * trial.wall_s) for trial in short)
    who = count(len(short), "candidate")
    return f"{who} ran out of time: raise --budget to {_minutes(elapsed_s + more_s)}; --resume keeps what is finished"


def advised(verdict: Verdict, trials: Iterable[Trial], elapsed_s: float, observer: Observer) -> Verdict:
    """The verdict with the advice: in its reason where eager is kept, as a note where a candidate won."""
    sentence = advice(trials, elapsed_s)
    if sentence and verdict.decision is Decision.KEEP_EAGER:
        return msgspec.structs.replace(verdict, because=f"{verdict.because}; {sentence}")
    if sentence:
        observer.note(sentence)
    return verdict


def _minutes(seconds: float) -> str:
    """Whole minutes, rounded up, as --budget takes them: "9m", "1h05m"."""
    hours, minutes = divmod(math.ceil(seconds / 60.0), 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m"
