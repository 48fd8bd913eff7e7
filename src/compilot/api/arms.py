"""Arms for `compilot.bench`: eager, plain torch.compile and the candidates of plans.

In: a shipment, plans, a directory. Out: a journal with a trial of each arm and races in fresh processes. Nothing is
searched and nothing decided. A plan that was made for another model or machine is measured all the same, and what
differs is said. An arm that fails, in its trial or in the race, is a row of the table like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compilot.artifacts.rundir import RunDir
from compilot.records import DynamicDim, Plan, Shipment, Trace

if TYPE_CHECKING:
    from compilot.artifacts.journal import Journal
    from compilot.progress import Observer
    from compilot.records import Candidate, Diagnosis, Fingerprint, Trial, WorkloadRef
    from compilot.trials.runner import Runner

TRIAL_CAP_S = 600.0


class NamedPlan(NamedTuple):
    """A plan, and what it is called in sentences: its path, or its place among those given."""

    name: str
    plan: Plan


class BenchRequest(NamedTuple):
    """What is to be compared, and how long."""

    shipment: Shipment
    label: str  # in the list of the user's runs
    plans: tuple[NamedPlan, ...]
    pairs: int
    processes: int
    argv: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()  # at which the arms are timed besides
    trace: Trace | None = None  # whose requests are replayed, in place of calls of the example


def measure(request: BenchRequest, run_dir: Path, observer: Observer) -> dict[str, str]:
    """Build, check and time every arm; the journal in the run directory has it all. Returns id -> name of its plan."""
    from compilot.api.trace_arms import replay_arms
    from compilot.report import write_batches_csv, write_csv
    from compilot.showing.noted import noted
    from compilot.trials import local
    from compilot.trials.limits import Limits, default_memory_limit
    from compilot.tuning.pipeline import remembered

    limits = Limits(memory_bytes=default_memory_limit(), machine_bytes=default_memory_limit())
    allowed = [e.evidence.tolerance for _, plan in request.plans for e in plan.entries if e.evidence.tolerance]
    tolerance = max(allowed, default=None)  # a plan in a lower precision is judged as it was when it was made
    where = RunDir(run_dir)
    with (
        noted(observer, where.path) as watcher,
        remembered(where, request.label, observer),
        local.LocalRunner(where, limits=limits, observer=watcher, tolerance=tolerance, compiler_first=True) as runner,
    ):
        journal, candidates, labels, diagnosis = _prepare(runner, request, run_dir, watcher)
        with journal:
            if request.trace is not None:
                _trials(runner, journal, [], watcher)
                replay_arms(runner, journal, request, diagnosis, request.trace, watcher)
            else:
                trials = _trials(runner, journal, candidates, watcher)
                trials = _races(runner, journal, trials, request, watcher)
                _batches(runner, journal, trials, request, watcher)
    write_csv(run_dir)
    write_batches_csv(run_dir)
    return labels


def _prepare(
    runner: Runner, request: BenchRequest, run_dir: Path, observer: Observer
) -> tuple[Journal, list[Candidate], dict[str, str], Diagnosis]:
    """Start eager, open the journal, and collect the arms: plain torch.compile, then the plans' candidates."""
    from compilot.candidates.spaces import candidates_of
    from compilot.diagnose.edits import TRAIN_MODE
    from compilot.engines.registry import plain_compile
    from compilot.records import DiagnosisLine
    from compilot.tuning.journal import make_header
    from compilot.tuning.options import TuneOptions

    observer.stage("starting eager, the baseline, and trying the C++ compiler")
    model = runner.open(request.shipment)
    seen = runner.inspect()
    header = make_header(model.ref, seen.fingerprint, TuneOptions(budget_s=0.0, argv=request.argv))
    journal = RunDir(run_dir).create_journal(header)
    journal.append(DiagnosisLine(diagnosis=seen.diagnosis, prepare_s=seen.compiler_tried_s or 0.0))
    train_mode = [f"{one.explanation}; {one.advice}" for one in seen.diagnosis.findings if one.kind == TRAIN_MODE]
    for note in [*train_mode, *model.notes, *_plan_notes(request.plans, model.ref, seen.fingerprint)]:
        observer.note(note)
    arms = {candidate.id: candidate for candidate in candidates_of(plain_compile(), seen.diagnosis)[:1]}
    labels: dict[str, str] = {}
    for name, plan in request.plans:
        for entry in plan.entries:
            arms.setdefault(entry.candidate.id, entry.candidate)
            labels[entry.candidate.id] = name
    return journal, list(arms.values()), labels, seen.diagnosis


def _plan_notes(plans: Sequence[NamedPlan], ref: WorkloadRef, here: Fingerprint) -> list[str]:
    """What a reader should know about a plan before its figures."""
    from compilot.identity.differences import explain_difference

    notes = [f"{name} keeps the model eager; there is nothing more to measure" for name, p in plans if not p.entries]
    for name, plan in plans:
        notes += [f"{name}: {text}" for text in explain_difference(plan.fingerprint, here)]
        if plan.workload.dynamic != ref.dynamic:
            was, now = _spelled(plan.workload.dynamic), _spelled(ref.dynamic)
            notes.append(f"{name}: tuned with dynamic dimensions {was}, measured here with {now}")
        if plan.workload.seed != ref.seed:
            notes.append(f"{name}: tuned with seed {plan.workload.seed}, measured here with seed {ref.seed}")
    return notes


def _spelled(dims: Sequence[DynamicDim]) -> str:
    return ", ".join(f"{d.input}:{d.dim}={d.min}..{d.max}" for d in dims) or "none"


def _trials(runner: Runner, journal: Journal, arms: Sequence[Candidate], observer: Observer) -> list[Trial]:
    """Each arm built cold and checked, in its own process; those that work go on."""
    from compilot.engines.eager.build import EAGER
    from compilot.records import State, TrialLine
    from compilot.tuning.comparing import tell_scatter, try_eager, try_one

    good = []
    for number, candidate in enumerate([EAGER, *arms], 1):
        observer.trying(candidate, number, 0.0)
        trial = try_eager(runner, TRIAL_CAP_S) if candidate.is_eager else try_one(runner, candidate, TRIAL_CAP_S)
        journal.append(TrialLine(trial=trial, at_s=0.0))
        observer.finished(trial, None)
        if candidate.is_eager:
            tell_scatter(trial, None, observer)  # what the runner said of others is no figure of eager's own
            _tell_room(runner.capacity.workers, len(arms) + 2, observer)
        elif trial.state is State.OK:
            good.append(trial)
        runner.keep([])
    return good


def _tell_room(room: int, wanted: int, observer: Observer) -> None:
    """Fewer workers fit than all arms with eager twice."""
    if room < wanted:
        text = f"the model is large for this machine's memory: at most {room} of {wanted} workers live at once"
        observer.note(f"{text}, so they are timed in smaller groups, or without the second eager")


def _races(
    runner: Runner, journal: Journal, trials: Sequence[Trial], request: BenchRequest, observer: Observer
) -> list[Trial]:
    """Fresh processes, interleaved; an arm that fails in a race has its failure for a result. Returns the others."""
    import msgspec

    from compilot.records import RaceLine, TrialLine, WarmStartLine
    from compilot.tuning.comparing import Compared, survivors

    by_id = {trial.candidate.id: trial for trial in trials}
    how = {"pairs": request.pairs, "processes": request.processes}
    for found in survivors(runner, trials, **how, purpose="bench"):
        if not isinstance(found, Compared):
            failed = msgspec.structs.replace(by_id[found.owner], state=found.state, reason=found.reason)
            journal.append(TrialLine(trial=failed, at_s=0.0))
            observer.finished(failed, None)
            del by_id[found.owner]
            continue
        journal.append(RaceLine(race=found.race, at_s=0.0))
        observer.raced(found.race)
        for candidate_id, measurements in found.warm.items():
            for measurement in measurements:
                journal.append(WarmStartLine(candidate_id=candidate_id, measurement=measurement))
    return list(by_id.values())


def _batches(
    runner: Runner, journal: Journal, trials: Sequence[Trial], request: BenchRequest, observer: Observer
) -> None:
    """The arms at each batch size that was asked for."""
    from compilot.tuning.batching import at_batch_sizes

    for line in at_batch_sizes(runner, trials, request.batch_sizes, pairs=request.pairs, observer=observer):
        journal.append(line)
        if line.race is not None:
            observer.raced(line.race)
