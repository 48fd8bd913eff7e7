"""Which candidate, if any, replaces eager?

In: trials, the confirming race, the goal, warm starts. Out: a Verdict that carries its reason.
Covered: every objective, a horizon of calls, keeping eager with the exact reason, doubts printed with the decision.
Not covered: running anything (trials/), the plan file (plan.py). A horizon counts for latency and throughput only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from compilot.records import (
    Comparison,
    Decision,
    Goal,
    Measurement,
    Objective,
    Outcome,
    Race,
    State,
    Trial,
    Verdict,
)
from compilot.verdict import rules
from compilot.verdict.contenders import Contender, Field, make_field
from compilot.verdict.words import count

CALL_EVAL = "call model.eval()"  # as in the next one: by this a reader of a verdict knows that it was said
TRAIN_MODE = "the model is in train mode, which most engines cannot run; call model.eval() first"
RAISE_BUDGET = "give a larger budget"
LATENCY = Goal()
NO_EAGER = "eager"  # chosen id when not even eager was tried


def decide(
    trials: Sequence[Trial],
    race: Race | None,
    goal: Goal = LATENCY,
    *,
    warm_starts: Mapping[str, Measurement] | None = None,
) -> Verdict:
    """Choose among the confirmed finalists, or keep eager; the reason comes with its figures and doubts."""
    field = make_field(trials, race, warm_starts or {}) if race else None
    if field is None or not field.candidates:
        return _keep(_eager_id(trials, race), _nothing_to_choose(trials))
    choice = _apply_rule(field, goal)
    comparisons = tuple(c.versus_eager for c in field.candidates if c.versus_eager is not None)
    if choice.contender is None:
        return _keep(field.eager.id, choice.because + _callers(goal) + _doubts(field.candidates), comparisons)
    return Verdict(
        decision=Decision.USE,
        chosen_id=choice.contender.id,
        because=choice.because + _callers(goal) + _doubts((choice.contender,)),
        comparisons=comparisons,
        break_even=rules.paid_back(field, choice.contender),
    )


def explained(verdict: Verdict, unjudgeable: str | None, processes: int, wanted: int) -> Verdict:
    """A verdict on a model that cannot be judged, or was not confirmed in time, says so and what to do.

    processes: sets of fresh ones that were done, of those wanted. Not confirmed in time means eager.
    """
    if unjudgeable:
        return msgspec.structs.replace(verdict, because=unjudgeable)
    if verdict.decision is Decision.USE and processes < wanted:
        why = f"confirmed in {processes} of {wanted} processes when the budget ended; {RAISE_BUDGET}"
        eager = verdict.comparisons[0].baseline_id
        return _keep(eager, f"{verdict.because}, but {why}", verdict.comparisons)
    if verdict.decision is Decision.KEEP_EAGER and any(_nearly_shown(c) for c in verdict.comparisons):
        return msgspec.structs.replace(verdict, because=f"{verdict.because}; a larger budget may prove it")
    return verdict


def told_of_early_end(verdict: Verdict, trials: Sequence[Trial]) -> Verdict:
    """A verdict of a run that the user ended early says so."""
    tried = count(sum(not trial.candidate.is_eager for trial in trials), "candidate")
    return msgspec.structs.replace(verdict, because=f"{verdict.because.rstrip('.')}; ended early, after {tried}")


def told_of_train_mode(verdict: Verdict, training: bool) -> Verdict:
    """Eager that was kept for a model in train mode comes with the likely reason: eval() was forgotten."""
    if not training or verdict.decision is not Decision.KEEP_EAGER or CALL_EVAL in verdict.because:
        return verdict
    return msgspec.structs.replace(verdict, because=f"{verdict.because.rstrip('.')}; {TRAIN_MODE}")


def _nearly_shown(comparison: Comparison) -> bool:
    """Faster by its whole interval, but not by more than this short race's own noise."""
    return comparison.outcome is Outcome.NO_DIFFERENCE and comparison.low > 1.0


def _apply_rule(field: Field, goal: Goal) -> rules.Choice:
    """Throughput is speed, too: with several callers every sample is wall time per call over all of them."""
    match goal.objective:
        case Objective.LATENCY | Objective.THROUGHPUT:
            calls = goal.horizon_calls
            return rules.by_speed(field) if calls is None else rules.by_horizon(field, calls)
        case Objective.P99:
            return rules.by_p99(field)
        case Objective.STARTUP:
            return rules.by_startup(field)
        case Objective.MEMORY:
            return rules.by_memory(field)


def _keep(eager_id: str, because: str, comparisons: tuple[Comparison, ...] = ()) -> Verdict:
    return Verdict(decision=Decision.KEEP_EAGER, chosen_id=eager_id, because=because, comparisons=comparisons)


def _eager_id(trials: Sequence[Trial], race: Race | None) -> str:
    if race:
        return race.arms[0]
    return next((t.candidate.id for t in trials if t.candidate.is_eager), NO_EAGER)


def _nothing_to_choose(trials: Sequence[Trial]) -> str:
    """Why there is no candidate to judge."""
    states = Counter(t.state for t in trials if not t.candidate.is_eager)
    if not states:
        return "no candidate was tried"
    if states[State.OK]:
        passed = f"{count(states[State.OK], 'candidate')} passed all checks"
        return f"{passed}, but none was confirmed in a race against eager"
    return "no candidate could be used: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _callers(goal: Goal) -> str:
    return f"; {count(goal.concurrency, 'caller')} at the same time" if goal.concurrency > 1 else ""


def _doubts(contenders: Sequence[Contender]) -> str:
    doubts = dict.fromkeys(doubt for contender in contenders for doubt in contender.doubts)
    return f"; doubts: {', '.join(doubts)}" if doubts else ""
