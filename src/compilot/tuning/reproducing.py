"""A plan's claim, measured again: eager and the plan's candidate in fresh processes, timed in turns.

In: a plan's entry, how its workload is rebuilt, a runner, a budget. Out: `Reproduced`; the new journal has the samples.
The claim is about one model: where the code, the structure or the parameters changed, it does not hold, and nothing is
timed. Other versions or another machine are told beside the figures. The run's own files are used where they are as
they were measured, else the candidate is built and checked again. Not covered: searching for something better (tune).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from compilot.artifacts.journal import Journal
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import engines_of
from compilot.identity.differences import differences, sentences
from compilot.identity.layers import changed_layers
from compilot.ledger.repeating import Repeat, Reproduced, judged
from compilot.progress import Observer
from compilot.records import (
    Comparison,
    DiagnosisLine,
    Goal,
    Objective,
    Plan,
    PlanEntry,
    Race,
    RaceLine,
    Shipment,
    State,
    Trial,
    TrialLine,
)
from compilot.trials.runner import ArmLost, Runner, SetRules
from compilot.tuning.budget import Budget, Spending
from compilot.tuning.comparing import in_fresh_processes, try_eager, try_one
from compilot.tuning.journal import make_header
from compilot.tuning.options import TuneOptions
from compilot.verdict.compare import compare

PURPOSE = "bench"  # of its race: nothing is decided by it
LONGEST_BUILD_S = 900.0


class Claimed(NamedTuple):
    """What is to be measured again."""

    plan: Plan
    entry: PlanEntry
    shipment: Shipment
    rebuild: str = ""  # why the files cannot be used; "": they lie in the new run directory
    argv: tuple[str, ...] = ()
    layers: Mapping[str, str] = {}  # of the model as the run saw it; none: not known


def reproduce(claim: Claimed, runner: Runner, run_dir: RunDir, budget: Budget, observer: Observer) -> Reproduced:
    """Measure a claim again, as far as the budget lasts."""
    budget.excuse(lambda: runner.capacity.waited_s)
    observer.stage("starting eager, the baseline")
    model = runner.open(claim.shipment)
    seen = runner.inspect()
    callers = claim.entry.evidence.callers
    goal = Goal(objective=Objective.THROUGHPUT if callers > 1 else Objective.LATENCY, concurrency=callers)
    options = TuneOptions(budget_s=budget.seconds, goal=goal, argv=claim.argv)
    with run_dir.create_journal(make_header(model.ref, seen.fingerprint, options)) as journal:
        journal.append(DiagnosisLine(diagnosis=seen.diagnosis, prepare_s=seen.compiler_tried_s or 0.0))
        found = differences(claim.plan.fingerprint, seen.fingerprint, engines_of(claim.entry.candidate))
        layers = [f"{one}." for one in changed_layers(claim.layers, seen.diagnosis.layers)]
        answer = partial(_answer, claim, run_dir, (*(one.sentence for one in found), *layers))
        if edited := [one for one in found if one.field.startswith("model.")]:
            return answer(Repeat.DOES_NOT_HOLD, f"the plan was made for another model: {sentences(edited)}")
        return answer(*_measured(claim, _Bench(runner, journal, budget, goal, observer)))


class _Bench(NamedTuple):
    """Where it is measured."""

    runner: Runner
    journal: Journal
    budget: Budget
    goal: Goal
    observer: Observer

    def noted(self, trial: Trial) -> Trial:
        self.journal.append(TrialLine(trial=trial, at_s=self.budget.elapsed_s))
        self.observer.finished(trial, None)
        return trial


def _measured(claim: Claimed, bench: _Bench) -> tuple[Repeat, str, Comparison | None]:
    """Build where that is needed, time in turns, judge."""
    eager = bench.noted(try_eager(bench.runner, LONGEST_BUILD_S))
    trial = bench.noted(_trial(claim, bench))
    if trial.state is State.TIMED_OUT:
        return Repeat.INCONCLUSIVE, f"it could not be built again in time: {trial.reason}", None
    if trial.state is not State.OK:
        return Repeat.DOES_NOT_HOLD, f"built again, it is {trial.state}: {trial.reason}", None
    if bench.budget.remaining_s <= 0.0:
        return Repeat.INCONCLUSIVE, "the budget was used up before anything was timed; give it more time", None
    try:
        race = _raced(eager, trial, bench)
    except ArmLost as lost:
        return Repeat.DOES_NOT_HOLD, f"it no longer runs: {lost.reason}", None
    now = compare(race, trial.candidate.id, EAGER.id)
    return (*judged(claim.entry.evidence.versus_eager, now), now)


def _trial(claim: Claimed, bench: _Bench) -> Trial:
    """The plan's candidate: its own files, or built and checked again."""
    entry = claim.entry
    if not claim.rebuild:
        why = "its files are those that the plan was made with"
        return Trial(
            candidate=entry.candidate, state=State.OK, reason=why, artifacts=entry.artifacts, guard=entry.guard
        )
    bench.observer.note(f"{entry.candidate.label} is built again: {claim.rebuild}")
    bench.observer.trying(entry.candidate, 1, bench.budget.remaining_s)
    return try_one(bench.runner, entry.candidate, LONGEST_BUILD_S)


def _raced(eager: Trial, trial: Trial, bench: _Bench) -> Race:
    """As the confirmation of a run: fresh processes, in turns, at least three sets while the budget lasts."""
    trials = {one.candidate.id: one for one in (eager, trial)}
    spending = Spending(bench.budget, trials, lambda: bench.runner.capacity, bench.goal, 1)
    pairs = spending.confirm_pairs([trial])
    bench.observer.stage(f"timing {trial.candidate.label} beside eager in fresh processes")
    compared = in_fresh_processes(
        bench.runner,
        [trial],
        enough=lambda race: _is_enough(race, spending, trial),
        rules=lambda race: SetRules(
            pairs, len(race.processes), spending.confirm_share_s(race), tail_s=0.0, purpose=PURPOSE
        ),
        purpose=PURPOSE,
    )
    bench.journal.append(RaceLine(race=compared.race, at_s=bench.budget.elapsed_s))
    bench.observer.raced(compared.race)
    return compared.race


def _is_enough(race: Race, spending: Spending, trial: Trial) -> bool:
    """One set at the least; the budget is the user's word here, since no plan hangs on it."""
    spent = bool(race.processes) and spending.budget.remaining_s <= 0.0
    return spent or spending.confirmed_enough(race, [trial])


def _answer(
    claim: Claimed,
    run_dir: RunDir,
    changes: tuple[str, ...],
    result: Repeat,
    because: str,
    now: Comparison | None = None,
) -> Reproduced:
    return Reproduced(
        result=result,
        because=because,
        model=claim.plan.workload.label,
        candidate=claim.entry.candidate.label,
        claimed=claim.entry.evidence.versus_eager,
        measured=now,
        changes=changes,
        rebuilt=claim.rebuild,
        run_dir=run_dir.path,
    )
