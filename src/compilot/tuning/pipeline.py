"""READ SECOND: `tune`, the whole story in one function.

In: a shipped workload. Out: a plan, with everything seen on the way in the journal. Covered: the order of the stages
and what each hands to the next; only this module joins them. Not covered: how a stage does its work. `run` around it
makes the run directory, reads an earlier journal, and writes the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot import checkup, report
from compilot._version import __version__
from compilot.artifacts import journal as journals
from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.shipments import keep_shipment
from compilot.candidates.offers import unserved
from compilot.candidates.search import plain_compile
from compilot.diagnose.hints import search_hints
from compilot.diagnose.ranking import once, top_findings
from compilot.diagnose.report_records import DoctorReport
from compilot.engines.eager.build import EAGER
from compilot.errors import CompilotError, RunDirError
from compilot.files import atomic
from compilot.identity.differences import differences
from compilot.progress import Observer
from compilot.records import (
    JOURNAL_SCHEMA,
    Diagnosis,
    DiagnosisLine,
    Fingerprint,
    Plan,
    Precision,
    RunHeader,
    Shipment,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WorkloadRef,
)
from compilot.reportfile import save
from compilot.trials.limits import Limits, default_memory_limit
from compilot.trials.protocol import Inspected
from compilot.trials.runner import LocalRunner, eager_must_work
from compilot.tuning.budget import Budget
from compilot.tuning.earlier_races import Measured, measured
from compilot.tuning.resuming import refuse_foreign_run, usable
from compilot.tuning.stages import (
    Options,
    Run,
    confirm,
    explained,
    make_search,
    race_finalists,
    record,
    try_candidates,
)
from compilot.verdict.decide import decide
from compilot.verdict.plan import make_plan

__all__ = ["Options", "Outcome", "run", "tune"]

JOURNAL = "journal.jsonl"
LAST_FILE = "trials.csv"  # that a run writes
PREPARE_FROM_S = 60.0  # of budget; the compiler's trial and the doctor take 10 to 20 s of it
DOCTOR_SHARE = 0.2  # of the budget: its findings order the candidates and open the report, they decide nothing
DOCTOR_LEAST_S = 15.0  # a small model takes 10 to 15 s beside eager's start
DOCTOR_MOST_S = 60.0  # what takes longer has a report of its own: `compilot doctor`
Seen = DoctorReport | CompilotError | None  # what the doctor saw, or why nothing, or nobody asked


class Outcome(NamedTuple):
    """What a run gives back."""

    plan: Plan
    verdict: Verdict
    run_dir: Path
    trials: tuple[Trial, ...]


def tune(run: Run, header: RunHeader, diagnosis: Diagnosis) -> tuple[Verdict, Plan]:
    """Try candidates, race the best, confirm the winner in fresh processes, decide, and say why."""
    search = make_search(run, diagnosis)
    try_candidates(run, search)
    finalists = race_finalists(run)
    race, warm = confirm(run, finalists)
    verdict = decide(
        list(run.trials.values()),
        race,
        horizon_calls=run.options.horizon_calls,
        objective=run.options.objective,
        warm_starts=warm,
    )
    verdict = explained(verdict, diagnosis, race)
    run.journal.append(VerdictLine(verdict=verdict, at_s=run.budget.elapsed_s))
    plan = make_plan(
        verdict,
        list(run.trials.values()),
        race,
        header,
        warm_starts=warm,
        plain_compile_id=plain_compile([t.candidate for t in run.trials.values()]),
        created=now(),
        version=__version__,
        artifacts_dir=f"work/{verdict.chosen_id}",
    )
    return verdict, plan


# ------------------------------------------------------------------------------------------------------------ the run


def run(shipment: Shipment, run_dir: Path, options: Options, observer: Observer, *, resume: bool = False) -> Outcome:
    """Make or reopen the run directory, tune, and write plan.json and trials.csv."""
    run_dir = run_dir.absolute()
    make_run_dir(run_dir)
    spare = default_memory_limit()
    limits = Limits(memory_bytes=options.max_memory_bytes or spare, machine_bytes=spare).within(options.budget_s)
    runner = LocalRunner(shipment, run_dir, limits=limits, observer=observer, tolerance=options.tolerance)
    budget = Budget(options.budget_s)
    refuse_a_second_run(run_dir, resume)
    if resume:
        refuse_foreign_run(run_dir, JOURNAL)
    journal = Journal.open(run_dir / JOURNAL) if resume else None
    try:
        header, diagnosis, journal, earlier = begin(runner, run_dir, options, observer, journal)
        rebuilt = resume and len(earlier) < len(finished_trials(run_dir, header))  # damaged files: other ones will race
        known = Measured() if rebuilt else measured(journals.read(run_dir / JOURNAL), finished=is_finished(run_dir))
        state = Run(runner, journal, budget, options, observer, earlier, known)
        baseline(state)
        verdict, plan = tune(state, header, diagnosis)
        trials = tuple(state.trials.values())
        save_plan(plan, run_dir / "plan.json")
        keep_shipment(shipment, run_dir)
        report.write_csv(run_dir)
        observer.decided(verdict, plan)
        return Outcome(plan, verdict, run_dir, trials)
    except BaseException:
        runner.abort()
        raise
    finally:
        runner.close()
        if journal is not None:
            journal.close()


def is_finished(run_dir: Path) -> bool:
    """Whether a run came to its end there: its last file is in place."""
    return (run_dir / LAST_FILE).exists()


def begin(
    runner: LocalRunner, run_dir: Path, options: Options, observer: Observer, resumed: Journal | None
) -> tuple[RunHeader, Diagnosis, Journal, dict[str, Trial]]:
    """Start eager, try the compiler and look at the model, side by side: nothing is timed yet. Open the journal."""
    observer.stage("starting eager, the baseline")
    with preparing(runner, run_dir, options) as prepared:
        opened = runner.start_eager()
        for note in opened.notes:
            observer.note(note)
        seen = prepared()
    toolchain = runner.toolchain  # None in a short run: it is tried when a candidate needs it
    inspected = runner.inspect_eager()
    header = make_header(opened.ref, inspected.fingerprint, options)
    earlier = usable(finished_trials(run_dir, header), run_dir, observer) if resumed else {}
    journal = resumed or Journal.create(run_dir / JOURNAL, header)
    observer.started(header, run_dir)
    if toolchain is not None and toolchain.problem is None:
        observer.note(f"the C++ compiler works ({toolchain.wall_s:.1f} s, counted in no candidate's cold time)")
    diagnosis = completed(inspected, toolchain.problem if toolchain else None, options)
    diagnosis = examined(diagnosis, seen, run_dir, observer)
    journal.append(DiagnosisLine(diagnosis=diagnosis, prepare_s=toolchain.wall_s if toolchain else 0.0))
    for finding in diagnosis.findings:
        observer.note(f"{finding.explanation}; {finding.advice}")
    return header, diagnosis, journal, earlier


def completed(inspected: Inspected, compiler_problem: str | None, options: Options) -> Diagnosis:
    """The look at the model, with what the parent knows: the compiler, the CPU, and precisions that nobody serves."""
    isa = inspected.fingerprint.machine.cpu_isa
    diagnosis = msgspec.structs.replace(inspected.diagnosis, compiler_problem=compiler_problem, cpu_isa=isa)
    if diagnosis.unjudgeable:
        return diagnosis
    missing = unserved(options.engines, diagnosis, options.allow_precision)
    return msgspec.structs.replace(diagnosis, findings=(*diagnosis.findings, *missing))


@contextmanager
def preparing(runner: LocalRunner, run_dir: Path, options: Options) -> Iterator[Callable[[], Seen]]:
    """The C++ compiler and the doctor, at work beside eager's start; a short budget goes without them."""
    if options.budget_s < PREPARE_FROM_S:
        yield lambda: None
        return
    with (
        runner.toolchain_beside() as toolchain,
        checkup.beside(runner.shipment, run_dir / "doctor", total_s=doctor_s(options.budget_s)) as report,
    ):

        def both() -> Seen:
            toolchain()  # the runner keeps what it says
            return told(report)

        yield both


def doctor_s(budget_s: float) -> float:
    """How long the doctor may look; a run waits for it before the first trial."""
    return min(max(DOCTOR_SHARE * budget_s, DOCTOR_LEAST_S), DOCTOR_MOST_S)


def told(report: Callable[[], DoctorReport]) -> Seen:
    """The report, or why there is none: the doctor is here to help, what it cannot do must not stop a run."""
    try:
        return report()
    except CompilotError as problem:
        return problem


def examined(diagnosis: Diagnosis, seen: Seen, run_dir: Path, observer: Observer) -> Diagnosis:
    """The diagnosis with what the doctor found, worst first."""
    if seen is None or diagnosis.unjudgeable is not None:
        return diagnosis
    if isinstance(seen, CompilotError):
        observer.note(f"the doctor could not look at the model: {seen}")
        return diagnosis
    save(seen, run_dir / "doctor")
    for what in seen.unseen:
        observer.note(f"the doctor did not see everything: {what}")
    findings = once((*top_findings(seen), *diagnosis.findings))
    return msgspec.structs.replace(diagnosis, findings=findings, **search_hints(seen))


def baseline(run: Run) -> None:
    """Eager first, always; on resume its worker is needed again, and its figures are today's."""
    run.observer.trying(EAGER, 1, run.budget.remaining_s)
    trial = run.runner.trial(EAGER, {}, run.budget.seconds)
    eager_must_work(trial)
    record(run, trial)
    run.observer.finished(trial, None)
    measurement = trial.measurement
    if measurement and measurement.steady_rss_bytes:
        steady, limit = measurement.steady_rss_bytes, run.options.max_memory_bytes
        if limit is not None and steady > limit:
            run.observer.note(f"eager itself needs {steady / 2**20:.0f} MiB, more than the limit for candidates")
        room = run.runner.learn_capacity(measurement.steady_rss_bytes)
        if room < run.options.finalists + 2:
            run.observer.note(f"the model is large for this machine's memory: at most {room} workers live at once")


def make_header(ref: WorkloadRef, fingerprint: Fingerprint, options: Options) -> RunHeader:
    """First line of the journal."""
    return RunHeader(
        schema=JOURNAL_SCHEMA,
        compilot=__version__,
        created=now(),
        workload=ref,
        fingerprint=fingerprint,
        budget_s=options.budget_s,
        objective=options.objective,
        horizon_calls=options.horizon_calls,
        argv=options.argv,
        allow_precision=options.allow_precision,
        tolerance=options.tolerance,
    )


def refuse_a_second_run(run_dir: Path, resume: bool) -> None:
    """Before anything is written: a directory that holds a run is resumed or left alone."""
    if not resume and (run_dir / JOURNAL).exists():
        raise RunDirError(f"{run_dir} already holds a run; pass --resume {run_dir} to go on with it, or another --out.")


def finished_trials(run_dir: Path, header: RunHeader) -> dict[str, Trial]:
    """The trials of the earlier run, when it was about the same model and machine."""
    lines = journals.read(run_dir / JOURNAL)
    first = next((line for line in lines if isinstance(line, RunHeader)), None)
    if first is None:
        raise RunDirError(f"{run_dir / JOURNAL} has no header line; start a new run.")
    changed = differences(first.fingerprint, header.fingerprint)
    if changed or first.workload != header.workload:
        why = "; ".join(d.sentence for d in changed) or "another workload or other dynamic dimensions"
        raise RunDirError(f"{run_dir} cannot be resumed: it was made for something else: {why}. Start a new run.")
    trials = [line.trial for line in lines if isinstance(line, TrialLine)]
    if first.tolerance != header.tolerance:  # judged by another measure
        trials = [t for t in trials if t.candidate.settings.precision is Precision.AS_IS]
    return {trial.candidate.id: trial for trial in trials}


def make_run_dir(run_dir: Path) -> None:
    """The run directory, or one clear sentence why not."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunDirError(f"cannot make {run_dir}: {problem.strerror}; choose another --out.") from problem
    if not os.access(run_dir, os.W_OK | os.X_OK):
        raise RunDirError(f"{run_dir} cannot be written to; choose another --out.")
    atomic.sweep(run_dir)  # what a killed run left half-written


def now() -> str:
    """This moment, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
