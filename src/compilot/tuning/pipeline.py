"""READ SECOND: `tune`, the whole story in one function.

In: a workload, a search, a runner. Out: a plan, with everything seen on the way in the journal. Covered: the order of
the stages and what each hands to the next; only this room joins them. Not covered: how a stage does its work. `run`
around it makes the run directory and the usual search and runner, and writes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot import report
from compilot._version import __version__
from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.candidates.by_kind import SearchByKind
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.prior import Prior
from compilot.candidates.search import Search, plain_compile, unasked
from compilot.candidates.training import TrainingSearch
from compilot.doctor import checkup
from compilot.engines.eager.build import EAGER
from compilot.errors import first_cause
from compilot.ledger import history
from compilot.progress import Observer
from compilot.records import (
    BatchRaceLine,
    Candidate,
    Goal,
    Objective,
    Plan,
    Replay,
    Shipment,
    State,
    Trace,
    Traffic,
    Trial,
    Verdict,
)
from compilot.showing.noted import noted
from compilot.trials.limits import Limits, default_memory_limit
from compilot.trials.local import LocalRunner
from compilot.trials.runner import Job, Runner
from compilot.tuning import earlier
from compilot.tuning.batching import at_batch_sizes, by_batch_size
from compilot.tuning.boundaries import told_of_boundary
from compilot.tuning.budget import Budget, Spending
from compilot.tuning.comparing import tell_scatter, try_eager
from compilot.tuning.ending import ended_early
from compilot.tuning.errors_allowed import refuse_unreachable
from compilot.tuning.final import Final
from compilot.tuning.journal import RunJournal, now
from compilot.tuning.options import LATENCY, TuneOptions
from compilot.tuning.repairing import Repairing
from compilot.tuning.serving import AFTER_SEARCH, Serving
from compilot.tuning.timeouts import advised
from compilot.tuning.training import refuse_for_training, told_of_parts
from compilot.verdict.busy import told_of_busy
from compilot.verdict.decide import decide, explained, told_of_early_end, told_of_train_mode
from compilot.verdict.finalists import FINALISTS, best_screened, choose_finalists
from compilot.verdict.plan import make_plan

PREPARE_FROM_S = 60.0  # of budget; the compiler's trial and the doctor take 10 to 20 s of it
DOCTOR_SHARE = 0.2  # of the budget: its findings order the candidates and open the report, they decide nothing
DOCTOR_LEAST_S = 15.0  # a small model takes 10 to 15 s beside eager's start
DOCTOR_MOST_S = 60.0  # what takes longer has a report of its own: `compilot doctor`


def tune(
    workload: Shipment,
    *,
    search: Search,
    runner: Runner,
    journal: RunJournal,
    budget: Budget,
    goal: Goal = LATENCY,
    finalists: int = FINALISTS,
    observer: Observer | None = None,
    prior: Prior | None = None,
    trace: Trace | None = None,
    finish_early: bool = False,
) -> Plan:
    """Try candidates, race the best, confirm the winner in fresh processes, decide, and say why.

    With a trace of many sizes, whole plans for them are replayed over it in place of the race and the confirmation.
    finish_early: the first Ctrl-C only ends the trying, where there is somebody to confirm.
    """
    observer = observer or Observer()
    budget.excuse(lambda: runner.capacity.waited_s)
    observer.stage("starting eager, the baseline")
    model = runner.open(workload)
    refuse_for_training(model.ref, journal.options)
    diagnosis = journal.begin(model, runner.inspect(), prior)
    refuse_unreachable(journal.header, diagnosis, observer)
    traffic = None if trace is None else many_sizes(runner, trace, observer)
    repairing = Repairing(search)
    repairing.begin(diagnosis)
    after = AFTER_SEARCH if traffic is not None else 0.0
    spending = Spending(budget, journal.trials, lambda: runner.capacity, goal, finalists, after, diagnosis.step)
    observer.trying(EAGER, 1, budget.remaining_s)
    eager = try_eager(runner, budget.seconds)
    journal.append(eager)  # eager first, always; on resume its figures are today's
    tell_scatter(eager, diagnosis.load, observer)
    tell_room(runner, finalists, observer)
    for trial in journal.settled():  # those of an interrupted part of this run, too
        if not trial.candidate.sizes:
            repairing.tell(trial)
    with ended_early(lambda: spending.worth_stopping() and runner.give_up(), wanted=finish_early) as ending:
        while not ending.is_set() and ((jobs := asked(repairing, runner, spending)) or runner.pending):
            for number, candidate in enumerate(jobs, len(journal.trials) + len(runner.pending)):
                observer.trying(candidate, number + 1, budget.remaining_s)
            known, best = journal.known_code(), best_screened(journal.trials.values())
            runner.submit([Job(candidate, spending.trial_limit_s(), known, best) for candidate in jobs])
            for trial in runner.completed():  # builds may overlap, timing never does
                if ending.is_set() and trial.state is not State.OK:
                    continue  # it was ended in its middle: a resumed run tries it again
                journal.append(trial)  # at once: a crash loses nothing
                repairing.tell(trial)
            journal.saw(runner.nodes())
            if not runner.pending:
                keep_the_best(runner, journal, finalists)  # not before all of them are timed
    if ending.is_set():
        left_s = spending.end_trying()
        observer.note(
            f"ended early: the best so far is confirmed now, in some {left_s:.0f} s; Ctrl-C again ends the run"
        )
    elif not spending.may_try() or unasked(search):
        observer.note("the budget for trials is used; what is left is reserved for the confirmation")
    if traffic is not None and not diagnosis.unjudgeable:
        return serve(Serving(runner, journal, spending, goal, observer, traffic, diagnosis))
    final = Final(runner, journal, spending, goal, finalists, observer)
    race, warm = final.confirm(final.race())
    trials = list(journal.trials.values())
    verdict = decide(trials, race, goal, warm_starts=warm)
    done = len(race.processes) if race is not None else spending.processes
    verdict = explained(verdict, diagnosis.unjudgeable, done, spending.processes)
    in_train_mode = diagnosis.training and diagnosis.step is None
    verdict = told_of_train_mode(told_of_busy(verdict, diagnosis.load), in_train_mode)
    verdict = told_of_boundary(repairing.told(verdict), trials, diagnosis)
    verdict = advised(verdict, trials, unasked(search), budget)
    verdict = told_of_early_end(verdict, trials) if ending.is_set() else verdict
    verdict = verdict if diagnosis.step is None else told_of_parts(verdict, trials)
    chosen = [trial for trial in trials if trial.candidate.id == verdict.chosen_id and not trial.candidate.is_eager]
    for line in at_batch_sizes(runner, chosen, journal.header.batch_sizes, observer=observer):
        journal.raced_at(line)
    journal.decided(verdict)
    for trial in chosen:
        runner.fetch(trial)
    return make_plan(
        verdict,
        trials,
        race,
        journal.header,
        warm_starts=warm,
        plain_compile_id=plain_compile([t.candidate for t in trials]),
        created=now(),
        version=__version__,
        artifacts_dir=RunDir.artifacts_dir(verdict.chosen_id),
    )


def many_sizes(runner: Runner, trace: Trace, observer: Observer) -> Traffic | None:
    """What the trace means for this model; None: all of it has the example's sizes, and there is nothing to choose."""
    traffic = runner.read_traffic(trace.sizes, recorded=trace.header is not None)
    if traffic.dims:
        return traffic
    observer.note("all calls of the trace have the example's sizes: the plan is chosen for them, as without a trace")
    return None


def serve(serving: Serving) -> Plan:
    """Policies for the sizes of a trace, replayed; the plan has one entry for each program."""
    served = serving.served()
    for line in served_at(serving, served.last):
        serving.journal.raced_at(line)
    verdict = told_of_train_mode(told_of_busy(served.verdict, serving.diagnosis.load), serving.diagnosis.training)
    serving.journal.decided(verdict)
    for candidate_id in served.used:
        serving.runner.fetch(serving.journal.trials[candidate_id])
    return msgspec.structs.replace(served.plan, because=verdict.because)


def served_at(serving: Serving, last: Replay | None) -> Iterator[BatchRaceLine]:
    """The figures at each batch size: of the last replay, or of eager alone where there was none."""
    sizes = serving.journal.header.batch_sizes
    if last is None:
        yield from at_batch_sizes(serving.runner, [], sizes, observer=serving.observer)
    elif sizes:
        yield from by_batch_size(last, [request[0] for request in serving.traffic.requests])


def asked(search: Search, runner: Runner, spending: Spending) -> list[Candidate]:
    """What is tried next; nothing while nobody could take it, or no time is left."""
    slots = runner.free_slots()
    if not slots or not spending.may_try():
        return []
    return [one for one in search.ask(slots, spending.for_trials()) if one.id not in runner.pending]


def tell_room(runner: Runner, finalists: int, observer: Observer) -> None:
    """A model so large that not all finalists can live at once is worth a note."""
    room = runner.capacity.workers
    if room < finalists + 2:
        observer.note(f"the model is large for this machine's memory: at most {room} workers live at once")


def keep_the_best(runner: Runner, journal: RunJournal, finalists: int) -> None:
    """Workers of the best candidates stay for the race; memory and eager's own worker set how many."""
    room = max(0, min(finalists, runner.capacity.workers - 2))
    runner.keep(choose_finalists(journal.trials.values(), limit=finalists)[:room])


# ------------------------------------------------------------------------------------------------------------ the run


MakeRunner = Callable[[RunDir, TuneOptions, Observer], Runner]


class Tuned(NamedTuple):
    """What a run gives back."""

    plan: Plan
    verdict: Verdict
    run_dir: Path
    trials: tuple[Trial, ...]


def run(
    shipment: Shipment,
    run_dir: Path,
    options: TuneOptions,
    observer: Observer,
    *,
    resume: bool = False,
    make_runner: MakeRunner | None = None,
    finish_early: bool = False,
) -> Tuned:
    """Make or reopen the run directory, tune, and write plan.json, trials.csv and report.html.

    make_runner: of whoever runs the candidates; None: this machine does. finish_early: as `tune` takes it.
    """
    directory = RunDir.make(run_dir)
    budget = Budget(options.budget_s)
    prior = Prior(partial(earlier.recalled, directory)) if options.prior else None
    search = usual_search(options, prior)
    with (
        noted(observer, directory.path, options.budget_s) as watcher,
        RunJournal(directory, options, budget, watcher, resume=resume) as journal,
        remembered(directory, workload_label(shipment), observer),
        (make_runner or local_runner)(directory, options, watcher) as runner,
    ):
        plan = tune(
            shipment,
            search=search,
            runner=runner,
            journal=journal,
            budget=budget,
            goal=options.goal,
            finalists=options.finalists,
            observer=watcher,
            prior=prior,
            trace=options.trace,
            finish_early=finish_early,
        )
        assert journal.verdict is not None  # `tune` ends with it
        directory.save_plan(plan)
        earlier.keep(directory)
        directory.keep_shipment(shipment)
        report.write_csv(directory.path)
        report.write_batches_csv(directory.path)
        write_report(directory, observer)
        observer.decided(journal.verdict, plan)
        return Tuned(plan, journal.verdict, directory.path, tuple(journal.trials.values()))


def usual_search(options: TuneOptions, prior: Prior | None) -> Search:
    """Over ways to run a model, or to train it: which one is known when the model was looked at."""
    goal, engines, precisions = options.goal, options.engines, options.allow_precision
    models = GuidedSearch(
        engines,
        precisions,
        horizon_calls=goal.horizon_calls,
        callers=goal.concurrency,
        prior=prior,
        quick_start=goal.objective is Objective.STARTUP,
    )
    for_memory = goal.objective is Objective.MEMORY or options.max_memory_bytes is not None
    trainings = TrainingSearch(engines, precisions, horizon_calls=goal.horizon_calls, for_memory=for_memory)
    return SearchByKind(models, trainings)


def write_report(directory: RunDir, observer: Observer) -> None:
    """The page to look at. Whatever goes wrong with it is a note: the run has its plan and its figures."""
    try:
        report.write_page(directory.path, directory.report)
    except Exception as problem:
        observer.note(f"the run has no {directory.report.name}: {first_cause(problem)}")


@contextmanager
def remembered(directory: RunDir, label: str, observer: Observer) -> Iterator[None]:
    """In the list of the user's runs, with how it ended."""
    how = state.Ending.ERROR
    if trouble := state.begun(directory, label):
        observer.note(trouble)
    try:
        yield
        how = state.Ending.PLAN
    except KeyboardInterrupt:
        how = state.Ending.INTERRUPTED
        raise
    finally:
        state.ended(directory, how)
        history.note(directory)


def workload_label(shipment: Shipment) -> str:
    """Whose run it is, for people."""
    return shipment.target or (shipment.ref.label if shipment.ref is not None else "")


def local_runner(run_dir: RunDir, options: TuneOptions, observer: Observer, *, examine: bool = True) -> LocalRunner:
    """This machine; the compiler's trial and the doctor beside eager's start, unless the budget is short.

    examine: with the doctor; another machine may have that done already.
    """
    spare = default_memory_limit()
    memory = options.max_memory_bytes or spare
    limits = Limits(memory_bytes=memory, machine_bytes=spare, cold_s=options.max_compile_s).within(options.budget_s)
    prepare = options.budget_s >= PREPARE_FROM_S
    doctor = partial(checkup.beside, folder=run_dir.doctor, total_s=doctor_s(options.budget_s))
    return LocalRunner(
        run_dir,
        limits=limits,
        observer=observer,
        tolerance=options.tolerance,
        max_error=options.max_error,
        compiler_first=prepare,
        doctor=doctor if prepare and examine else None,
        callers=options.goal.concurrency,
    )


def doctor_s(budget_s: float) -> float:
    """How long the doctor may look; a run waits for it before the first trial."""
    return min(max(DOCTOR_SHARE * budget_s, DOCTOR_LEAST_S), DOCTOR_MOST_S)
