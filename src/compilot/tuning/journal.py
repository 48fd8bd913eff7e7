"""The journal of a run: written at once, and read again by a run that goes on with it.

In: what happens. Out: lines on disk before the next step begins, so that a crash loses nothing; every finished trial,
newest figures first; races of an interrupted part that need no second time. Covered: header and diagnosis, the doctor's
findings among them. Not covered: the file itself (artifacts/journal.py), whose run it is (resuming.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import msgspec

from compilot._version import __version__
from compilot.artifacts.rundir import RunDir
from compilot.candidates.prior import Prior
from compilot.candidates.spaces import unserved
from compilot.diagnose.edits import TRAIN_MODE
from compilot.diagnose.graphs.search_hints import search_hints
from compilot.diagnose.ranking import once, top_findings
from compilot.diagnose.report_records import DoctorReport
from compilot.doctor.report_files import save
from compilot.identity.repository import source_commit
from compilot.progress import Observer
from compilot.records import (
    JOURNAL_SCHEMA,
    BatchRaceLine,
    Diagnosis,
    DiagnosisLine,
    Expectation,
    Fingerprint,
    JournalLine,
    Measurement,
    NodeLine,
    Race,
    RaceLine,
    Replay,
    ReplayLine,
    RunHeader,
    State,
    Trace,
    TrafficLine,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WarmStartLine,
    WorkloadRef,
)
from compilot.report.foreseen import suggestion
from compilot.trials.runner import ArmLost, Inspection, Model
from compilot.tuning.budget import Budget
from compilot.tuning.comparing import Compared
from compilot.tuning.measured import Measured, measured
from compilot.tuning.options import TuneOptions
from compilot.tuning.resuming import finished_trials, judged_otherwise, refuse_other_callers, usable
from compilot.tuning.timeouts import is_worth_another
from compilot.tuning.training import unserved_in_training
from compilot.verdict.finalists import screening_ratio

CALLS = "(calls)"  # a trace that was given as calls, not as a file


class RunJournal:
    """What one run found out."""

    header: RunHeader

    def __init__(
        self, run_dir: RunDir, options: TuneOptions, budget: Budget, observer: Observer, *, resume: bool = False
    ) -> None:
        """A directory that holds a run already is refused, or resumed."""
        self._run_dir = run_dir
        self.options = options
        self._budget = budget
        self._observer = observer
        self._earlier = Measured()
        self._trials: dict[str, Trial] = {}
        self._nodes: dict[str, NodeLine] = {}
        self.verdict: Verdict | None = None
        if resume:
            run_dir.refuse_foreign()
            refuse_other_callers(run_dir, options.goal.concurrency)
        else:
            run_dir.refuse_second_run()
        self._file = run_dir.open_journal() if resume else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def trials(self) -> Mapping[str, Trial]:
        """Every finished trial by candidate, an interrupted part's first."""
        return self._trials

    def begin(self, model: Model, seen: Inspection, prior: Prior | None = None) -> Diagnosis:
        """Header and diagnosis on disk; what an interrupted part of this run has finished is known from here on.

        prior: knows the model from here on, and what it expects is in the header.
        """
        for note in model.notes:
            self._observer.note(note)
        callers = self.options.goal.concurrency
        expected = None if prior is None else prior.begin(seen.fingerprint, seen.diagnosis, callers)
        self.header = make_header(model.ref, seen.fingerprint, self.options, expected)
        if self._file is None:
            self._file = self._run_dir.create_journal(self.header)
        else:
            self._go_on()
        self._observer.started(self.header, self._run_dir.path)
        diagnosis = examined(completed(seen, self.options), seen.doctor, self._run_dir, self._observer)
        tried_s = seen.compiler_tried_s
        if tried_s is not None and diagnosis.compiler_problem is None:
            self._observer.note(f"the C++ compiler works ({tried_s:.1f} s, counted in no candidate's cold time)")
        self._write(DiagnosisLine(diagnosis=diagnosis, prepare_s=tried_s or 0.0))
        for finding in diagnosis.findings:
            self._observer.note(f"{finding.explanation}; {finding.advice}")
        if expected is not None:
            self._observer.note(f"{suggestion(expected)}; that orders the trials and decides nothing")
        return diagnosis

    def _go_on(self) -> None:
        """Trials and races of the interrupted part, as far as their files are as they were."""
        lines = self._run_dir.lines()
        before = finished_trials(self._run_dir, lines, self.header)
        self._trials = usable(before, self._run_dir, self._observer)
        changed = judged_otherwise(self._trials.values(), lines)
        if len(self._trials) == len(before) and not changed:  # else other ones will race
            self._earlier = measured(lines, finished=self._run_dir.is_finished)
        self._write(self.header)  # the next resumption takes its options from here
        for trial in changed:
            self._know(trial)
            why = "" if trial.state is State.OK else f", {trial.reason}"
            self._observer.note(f"{trial.candidate.label} is judged otherwise now: {trial.state}{why}")

    # --------------------------------------------------------------------------------------------- what happens

    def append(self, trial: Trial) -> None:
        """A trial ended."""
        self._know(trial)
        self._observer.finished(trial, screening_ratio(trial))

    def strike_out(self, lost: ArmLost) -> None:
        """A candidate that failed in a race is out, whatever its trial said."""
        trial = msgspec.structs.replace(self._trials[lost.owner], state=lost.state, reason=lost.reason)
        self._know(trial)
        self._observer.finished(trial, None)

    def raced(self, race: Race) -> None:
        """A race among finalists ended."""
        self._write(RaceLine(race=race, at_s=self._budget.elapsed_s))
        self._observer.raced(race)

    def confirmed(self, compared: Compared) -> None:
        """The confirmation ended."""
        self.raced(compared.race)
        for candidate_id, measurements in compared.warm.items():
            for measurement in measurements:
                self._write(WarmStartLine(candidate_id=candidate_id, measurement=measurement))

    def raced_at(self, line: BatchRaceLine) -> None:
        """Eager and the plan were timed at one batch size."""
        self._write(msgspec.structs.replace(line, at_s=self._budget.elapsed_s))
        if line.race is not None:
            self._observer.raced(line.race)

    def served(self, line: TrafficLine) -> None:
        """What the engines' programs cost at the sizes of the trace is known."""
        self._write(msgspec.structs.replace(line, at_s=self._budget.elapsed_s))

    def replayed(self, replay: Replay) -> None:
        """Policies were replayed."""
        self._write(ReplayLine(replay=replay, at_s=self._budget.elapsed_s))
        self._observer.raced(replay.race)

    def decided(self, verdict: Verdict) -> None:
        """What the run came to."""
        self.verdict = verdict
        self._write(VerdictLine(verdict=verdict, at_s=self._budget.elapsed_s))

    def saw(self, nodes: Sequence[NodeLine]) -> None:
        """Machines of a cluster, each once and again when something is known that was not."""
        for line in nodes:
            if self._nodes.get(line.node) != line:
                self._nodes[line.node] = line
                self._write(line)

    def _know(self, trial: Trial) -> None:
        self._trials[trial.candidate.id] = trial
        self._write(TrialLine(trial=trial, at_s=self._budget.elapsed_s))

    def _write(self, line: JournalLine) -> None:
        assert self._file is not None  # `begin` comes first
        self._file.append(line)

    # ---------------------------------------------------------------------------------------- what is known already

    def settled(self) -> list[Trial]:
        """The trials that need no second time; a note names those that ran out of time and get more now."""
        found = []
        for trial in self._trials.values():
            if is_worth_another(trial, self._budget.seconds):
                self._observer.note(f"{trial.candidate.label} is tried again: it had only {trial.wall_s:.0f} s")
            else:
                found.append(trial)
        return found

    def known_code(self) -> dict[str, str]:
        """Digest of each program seen so far -> the candidate that has it."""
        trials = self._trials.values()
        return {t.code_sha256: t.candidate.id for t in trials if t.code_sha256 and t.state is State.OK}

    def race_of(self, arms: Sequence[str]) -> Race | None:
        """An interrupted part's race among these."""
        found = self._earlier.race_of(arms)
        if found is not None:
            self._observer.note("the race among the finalists is in the journal already")
        return found

    def confirmation_of(self, arms: Sequence[str]) -> tuple[Race, dict[str, Measurement]] | None:
        """An interrupted part's confirmation of these."""
        found = self._earlier.confirmation_of(arms)
        if found is not None:
            self._observer.note("the confirmation is in the journal already")
        return found


def completed(seen: Inspection, options: TuneOptions) -> Diagnosis:
    """The look at the model, with what the parent knows: the CPU, and precisions that nobody serves."""
    diagnosis = msgspec.structs.replace(seen.diagnosis, cpu_isa=seen.fingerprint.machine.cpu_isa)
    if diagnosis.unjudgeable:
        return diagnosis
    precisions = () if diagnosis.step is not None else options.allow_precision  # a training has other ways to them
    missing = [*unserved(options.engines, diagnosis, precisions), *unserved_in_training(diagnosis, options)]
    return msgspec.structs.replace(diagnosis, findings=(*diagnosis.findings, *missing))


def examined(diagnosis: Diagnosis, doctor: DoctorReport | str | None, run_dir: RunDir, observer: Observer) -> Diagnosis:
    """The diagnosis with what the doctor found, worst first."""
    if doctor is None or diagnosis.unjudgeable is not None:
        return diagnosis
    if isinstance(doctor, str):
        observer.note(f"the doctor could not look at the model: {doctor}")
        return diagnosis
    save(msgspec.structs.replace(doctor, eager_call_s=diagnosis.eager_call_s), run_dir.doctor)  # timed alone
    for what in doctor.unseen:
        observer.note(f"the doctor did not see everything: {what}")
    findings = once((*top_findings(doctor), *diagnosis.findings))
    if diagnosis.step is not None:  # then train mode is what is meant
        findings = tuple(one for one in findings if one.kind != TRAIN_MODE)
    return msgspec.structs.replace(diagnosis, findings=findings, **search_hints(doctor))


def make_header(
    ref: WorkloadRef, fingerprint: Fingerprint, options: TuneOptions, expected: Expectation | None = None
) -> RunHeader:
    """First line of the journal."""
    return RunHeader(
        schema=JOURNAL_SCHEMA,
        compilot=__version__,
        created=now(),
        workload=ref,
        fingerprint=fingerprint,
        budget_s=options.budget_s,
        objective=options.goal.objective,
        horizon_calls=options.goal.horizon_calls,
        concurrency=options.goal.concurrency,
        argv=options.argv,
        allow_precision=options.allow_precision,
        tolerance=options.tolerance,
        engines=options.engines,
        max_memory_bytes=options.max_memory_bytes,
        max_compile_s=options.max_compile_s,
        max_error=options.max_error,
        preset=options.preset,
        prior=options.prior,
        batch_sizes=options.batch_sizes,
        trace=trace_name(options.trace) if not options.batch_sizes else "",  # whose calls follow from the sizes
        max_entries=options.max_entries,
        expected=expected,
        source=source_commit(ref.target),
        on=options.on,
        nodes=dict(options.nodes),
        exchange=options.exchange,
    )


def trace_name(trace: Trace | None) -> str:
    """What a header calls it; calls that were given as they are have no name to find them by."""
    if trace is None:
        return ""
    return CALLS if trace.path is None else str(trace.path.absolute())


def now() -> str:
    """This moment, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
