"""The runner on this machine: one child process per candidate.

In: a workload, jobs. Out: trials, races over live workers, sets of fresh ones. Covered: a trial's record, whatever
happens in it; builds side by side where that is asked for; races with an A/A arm; cases that end eager's own process.
Not covered: the processes themselves (workers.py), a trial's steps (attempt.py), which candidate comes next
(candidates/), what the samples mean (verdict/). Timing never runs side by side, nor beside that of other runs: it has
the host's lease (lease.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.diagnose.report_records import DoctorReport
from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import traits_of
from compilot.errors import CompilotError, EnvironmentProblem, WorkerError
from compilot.measure.racing import race as run_race
from compilot.measure.reference import RUNNING
from compilot.measure.stats import candidate_columns, leads, should_stop
from compilot.measure.tolerance import tolerance_of
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    MachineLoad,
    Measurement,
    NodeLine,
    Padding,
    PaddingLeak,
    PaddingProof,
    ProcessSamples,
    Race,
    Reference,
    Shipment,
    SizeCount,
    State,
    Traffic,
    Trial,
)
from compilot.trials import lease, replaying
from compilot.trials.attempt import Attempt, Judge, first_call, steadied, with_tail
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits
from compilot.trials.load import LoadLook, LoadWatch
from compilot.trials.nursery import COMPILER
from compilot.trials.opening import ask_to_open
from compilot.trials.protocol import (
    CheckCurve,
    CheckPadding,
    Done,
    Inspect,
    Inspected,
    MakeCurves,
    MakeReference,
    Opened,
    PaddingChecked,
    PaddingProven,
    PrepareToolchain,
    ProvePadding,
    ReadTraffic,
    ReferenceMade,
    ToolchainReady,
    TrafficRead,
    Verified,
)
from compilot.trials.refusing import refusal
from compilot.trials.replies import answered
from compilot.trials.run_leases import RunLeases
from compilot.trials.runner import (
    BESIDE,
    Arm,
    ArmLost,
    Capacity,
    FreshReplay,
    FreshSet,
    Inspection,
    Job,
    Model,
    PaddingSeen,
    RaceRules,
    ReplayRules,
    SetRules,
    arm_ids,
)
from compilot.trials.sharing import are_there, files_for, with_cold_start_of
from compilot.trials.workers import OWN_CALLS, Calls, Failure, Workers, must, refuse_fallbacks
from compilot.verdict.busy import busy_note, is_busy

MOST_DEADLY = 4  # cases that may end eager's process before the model itself is to blame

Doctor = Callable[[Shipment], AbstractContextManager[Callable[[], DoctorReport]]]


class LocalRunner:
    """Runs trials and races on this machine."""

    def __init__(
        self,
        run_dir: RunDir,
        *,
        limits: Limits,
        observer: Observer,
        tolerance: float | None = None,
        max_error: float | None = None,
        builds_at_once: int = 1,
        compiler_first: bool = False,
        doctor: Doctor | None = None,
        callers: int = 1,
        judges_speed: bool = True,
    ) -> None:
        """tolerance: of lower precisions; None: each one's default. builds_at_once: how many builds may overlap.

        max_error: relative RMSE that any candidate may have, whatever its precision.
        compiler_first, doctor: try the C++ compiler, and have the model examined, beside eager's start.
        callers: that call at the same time whenever something is timed, eager too.
        judges_speed: False: nobody compares the figures, so the machine is never taken alone for them.
        """
        self.run_dir = run_dir
        self.limits = limits
        self.observer = observer
        self.tolerance = tolerance
        self.max_error = max_error
        self.toolchain: ToolchainReady | None = None  # None: not tried yet
        self.workers = Workers(None, run_dir, limits=limits, observer=observer, callers=callers)
        self._builds_at_once = builds_at_once
        self._compiler_first = compiler_first
        self._doctor = doctor
        self._beside = ExitStack()
        self._starting = ExitStack()
        self._leases = RunLeases(observer.note, judges_speed=judges_speed)
        self._wait_for_compiler: Callable[[], ToolchainReady] | None = None
        self._wait_for_doctor: Callable[[], DoctorReport] | None = None
        self._reference: Reference | None = None
        self._references: dict[str, Reference] = {}  # of other sizes than the example's, by their folder
        self._curves: set[bool] = set()  # eager's losses over many steps: for candidates of a lower precision, or not
        self._load: MachineLoad | None = None
        self._dynamic = False  # whether the user declared which dimensions vary
        self._jobs: list[Job] = []
        self._under_way: tuple[str, ...] = ()  # ids of candidates whose trials go on
        self._worked: list[Trial] = []  # with files, built in this run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self.workers.abort()
        finally:  # a second Ctrl-C must not leave the rest alive
            self.close()

    def close(self) -> None:
        """End every process of this run."""
        try:
            self._starting.close()
            self._beside.close()
        finally:
            try:
                self.workers.close()
            finally:
                self.workers.nursery.close()

    # ------------------------------------------------------------------------------------------------ eager first

    def open(self, workload: Shipment) -> Model:
        """Start eager's worker; the compiler's trial and the doctor begin beside it where they were asked for."""
        self.workers.shipment = workload
        look = LoadLook()  # first: who is busy is said before anything is spent
        self._starting.enter_context(self._leases.building())  # until something is timed
        if self._compiler_first:
            self._wait_for_compiler = self._beside.enter_context(self._compiler_beside())
        if self._doctor is not None:
            self._wait_for_doctor = self._beside.enter_context(self._doctor(workload))
        begin = time.monotonic()
        opened = self._start_eager()
        self.workers.open_s = time.monotonic() - begin
        self.workers.imports_compiler = COMPILER in opened.imports
        self.workers.nursery.learn(opened.imports)
        self._load = look.result()
        if self._load is not None and is_busy(self._load):
            self.observer.note(busy_note(self._load))
        return Model(opened.ref, opened.notes)

    def _timing(self) -> AbstractContextManager[lease.Holding]:
        """The machine alone; what began with the run is over by now."""
        self._starting.close()
        return self._leases.timing()

    def _building(self) -> AbstractContextManager[lease.Holding]:
        self._starting.close()
        return self._leases.building()

    def _start_eager(self) -> Opened:
        with _eager_must_live():
            child = self.workers.spawn(EAGER, "eager")
            return answered(ask_to_open(child, self.workers.opening(EAGER), self.limits))

    def inspect(self) -> Inspection:
        """Run eager and its float64 self, which every candidate is held against; wait for what began beside it."""
        if self._wait_for_compiler is not None:
            self._wait_for_compiler()
        seen = self._told()
        self._beside.close()
        with self._timing():
            inspected = self._inspect_eager()
        self.workers.nursery.settle()  # nothing of ours imports any more when eager is timed
        self._reference = inspected.reference
        self.workers.indices = inspected.diagnosis.indices
        self._dynamic = inspected.diagnosis.dynamic
        tried = self.toolchain
        problem = tried.problem if tried is not None else None
        diagnosis = msgspec.structs.replace(inspected.diagnosis, compiler_problem=problem, load=self._load)
        return Inspection(diagnosis, inspected.fingerprint, tried.wall_s if tried is not None else None, seen)

    def _told(self) -> DoctorReport | str | None:
        """The report, or why there is none: the doctor is here to help, what it cannot do must not stop a run."""
        try:
            return self._wait_for_doctor() if self._wait_for_doctor is not None else None
        except CompilotError as problem:
            return str(problem)

    def _inspect_eager(self) -> Inspected:
        """The look at eager; a case of our own that ends eager's process is left out, and said."""
        self.observer.doing("running eager and its float64 reference")
        folder = self.run_dir.reference
        without: tuple[str, ...] = ()
        while True:
            request = Inspect(references=str(folder), without=without)
            try:
                asked = self.workers.eager.ask(request, Inspected, limit_s=self.limits.inspect_s, doing="running eager")
                return answered(asked)
            except Dead as dead:
                case = _deadly_case(folder, dead)
                if case is None or len(without) == MOST_DEADLY:
                    raise EnvironmentProblem(f"eager's own process failed: {dead.reason}.") from dead
                self.observer.note(f"eager itself does not survive the inputs '{case}' ({dead.reason}): left out")
                without = (*without, case)
                self.workers.drop(EAGER.id)
                self._start_eager()

    # ---------------------------------------------------------------------------------------------- the compiler

    def try_compiler(self) -> ToolchainReady:
        """Build the shared C++ header in a worker of its own; its cost is nobody's compile time."""
        with self._compiler_beside() as ready:
            return ready()

    @contextlib.contextmanager
    def _compiler_beside(self) -> Iterator[Callable[[], ToolchainReady]]:
        """The same while the caller does something else; what it gets waits for the compiler."""
        child = self.workers.spawn(EAGER, "toolchain", keep=False)
        try:
            child.send(PrepareToolchain(), doing="trying the C++ compiler")
            yield lambda: self._compiler_tried(child)
        finally:
            child.kill()

    def _compiler_tried(self, child: Child) -> ToolchainReady:
        try:
            reply = child.receive(ToolchainReady, limit_s=self.limits.prepare_s)
            self.toolchain = reply if isinstance(reply, ToolchainReady) else _unready(reply.reason)
        except Dead as dead:
            self.toolchain = _unready(dead.reason)
        return self.toolchain

    def _compiler_problem(self) -> str | None:
        """Why C++ cannot be compiled here, None where it can; asked once, in a short run not before it is needed."""
        if self.toolchain is None:
            self.observer.stage("trying the C++ compiler and building its shared header, once per machine")
            self.try_compiler()
        return self.toolchain.problem if self.toolchain else None

    # ----------------------------------------------------------------------------------------------------- trials

    @property
    def capacity(self) -> Capacity:
        """As known so far."""
        forks = self.workers.nursery.forks
        return Capacity(self.workers.at_once, self.workers.open_s, forks, self._leases.waited_s)

    def free_slots(self) -> int:
        """One, unless builds may overlap: a cold start timed beside another build has to be measured again."""
        return max(1, min(self._builds_at_once, self.workers.at_once - self.workers.alive))

    @property
    def pending(self) -> list[str]:
        """Those that nobody has asked for yet."""
        return [job.candidate.id for job in self._jobs]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take these jobs; they are begun when somebody asks for what was completed."""
        ids = [*self.pending, *(job.candidate.id for job in jobs)]
        if len(set(ids)) < len(ids):
            raise WorkerError("a candidate was submitted twice at once.")
        self._jobs += jobs

    def completed(self) -> Iterator[Trial]:
        """Build what was submitted, side by side where it is more than one; then check and time one after another."""
        jobs, self._jobs = self._jobs, []
        self._under_way = tuple(job.candidate.id for job in jobs)
        refused = {job.candidate.id: why for job in jobs if (why := self._refusal(job.candidate))}
        for job in jobs:
            if why := refused.get(job.candidate.id):
                yield Trial(candidate=job.candidate, state=State.INFEASIBLE, reason=why)
        with self._building() as building:
            attempts = [self._attempt(job) for job in jobs if job.candidate.id not in refused]
            self._build(attempts)
        for attempt in attempts:
            if building.beside:  # another run of this machine was building
                attempt.doubt(BESIDE)
            with self._timing() as timing:
                with _eager_must_live():  # it is paired with calls of the same sizes
                    self.workers.work_on(self.workers.eager, _calls_of(attempt.candidate))
                trial = attempt.measure()
            trial = msgspec.structs.replace(trial, leases=(timing.record(),))
            self._learn_from(trial)
            self._under_way = tuple(one for one in self._under_way if one != trial.candidate.id)
            yield trial

    def give_up(self) -> bool:
        """The workers under trial die; whoever waits for their answers is told."""
        for candidate_id in self._under_way:
            if (child := self.workers.live(candidate_id)) is not None:
                child.end()
        return True

    def _attempt(self, job: Job) -> Attempt:
        """A trial that is about to begin; from the files of one with the same program where this run has them."""
        known = files_for(job.candidate, self._worked)
        there = known is not None and are_there(known, self.workers.workspace(known.candidate))
        return Attempt(self.workers, job, self._judge(job.candidate), known if there else None)

    def _judge(self, candidate: Candidate) -> Judge:
        """What its answers are held against; programs for other sizes than the example's have a reference of those."""
        folder, reference = self.run_dir.reference, self._reference
        if candidate.sizes:
            folder = folder / "x".join(map(str, candidate.sizes.values()))
            reference = self._references.get(folder.name) or self._refer(candidate.sizes, folder)
        return Judge(reference, self.tolerance, self.max_error, folder)

    def _unreferable(self, candidate: Candidate) -> str | None:
        """Why there is nothing to hold a program for these sizes against: eager itself cannot do it."""
        try:
            self._judge(candidate)
        except CompilotError as problem:
            return f"eager itself cannot be run at these sizes: {problem}"
        return None

    def _refer(self, sizes: Mapping[str, int], folder: Path) -> Reference:
        self.observer.doing(f"running eager and its float64 reference at size {folder.name}")
        request = MakeReference(references=str(folder), sizes=dict(sizes))
        with self._building(), _eager_must_live():  # not timed, but no timing of others may run beside it
            eager = self.workers.eager
            asked = eager.ask(request, ReferenceMade, limit_s=self.limits.inspect_s, doing="running eager")
        self._references[folder.name] = answered(asked).reference
        return self._references[folder.name]

    def _refusal(self, candidate: Candidate) -> str | None:
        """Why a candidate is not worth a process."""
        if why := refusal(candidate, self.workers.indices, dynamic=self._dynamic):
            return why
        if traits_of(candidate).compiler_at_build and (problem := self._compiler_problem()):
            return f"no working C++ compiler: {problem}"
        return self._unreferable(candidate) if candidate.sizes else None

    def _build(self, attempts: Sequence[Attempt]) -> None:
        if len(attempts) < 2:
            for attempt in attempts:
                attempt.build()
            return
        with ThreadPoolExecutor(len(attempts), thread_name_prefix="compilot-build") as pool:
            try:
                for build in [pool.submit(attempt.build, beside=True) for attempt in attempts]:
                    build.result()
            except BaseException:
                self.workers.end()  # threads that wait for a worker are told of its death
                raise
        for attempt in attempts:
            if attempt.starved:  # the others may be to blame
                attempt.begin_anew()
                attempt.build()

    def _learn_from(self, trial: Trial) -> None:
        """Who has files that others may start from; eager's own trial tells how large the model is."""
        if trial.artifacts and trial.files_of is None:
            self._worked.append(trial)
        steady = trial.measurement.steady_rss_bytes if trial.measurement else 0
        if not trial.candidate.is_eager or not steady:
            return
        self.workers.learn_capacity(steady)
        limit = self.limits.memory_bytes
        if limit is not None and limit != self.limits.machine_bytes and steady > limit:
            self.observer.note(f"eager itself needs {steady / 2**20:.0f} MiB, more than the limit for candidates")

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """One more cold build in an empty folder, with nothing beside it; only its cost is kept."""
        limits = self.limits.capped(limit_s)
        self.workers.clear(trial.candidate, "-alone")  # of a run that was killed here
        child = self.workers.spawn(trial.candidate, f"{trial.candidate.id}-alone", keep=False, apart="-alone")
        try:
            request = self.workers.opening(trial.candidate, "-alone")
            must(child, child.ask(request, Opened, limit_s=limits.open_s, doing="opening"))
            with self._timing():
                first = first_call(self.workers.build(child, limits, alone=True))
        except (Dead, Failure):
            return trial  # it keeps its doubt
        finally:
            child.kill()
            self.workers.clear(trial.candidate, "-alone")
        assert trial.measurement is not None
        doubts = tuple(doubt for doubt in trial.measurement.doubts if doubt != BESIDE)
        alone = msgspec.structs.replace(with_cold_start_of(first, trial.measurement), doubts=doubts)
        return msgspec.structs.replace(trial, measurement=alone)

    def over_many_steps(self, trial: Trial, limit_s: float) -> Trial:
        """Eager's curves once per run, then the candidate's own."""
        references, reference = str(self.run_dir.reference), self._reference
        assert reference is not None  # `inspect` comes first
        assert trial.check is not None  # it passed
        lower = trial.check.tolerance is not None and not reference.seeded  # random ones have several seeds anyway
        if lower not in self._curves:
            make = MakeCurves(references=references, reference=reference, limit_s=limit_s, lower=lower)
            with _eager_must_live():
                answered(self._raced(EAGER).ask(make, Done, limit_s=self.limits.inspect_s, doing="training eager"))
            self._curves.add(lower)
        ask = CheckCurve(references=references, reference=reference, check=trial.check)
        try:
            child = self._raced(trial.candidate)
            check = must(child, child.ask(ask, Verified, limit_s=self.limits.inspect_s, doing="training")).check
        except (Dead, Failure) as lost:
            self.workers.drop(trial.candidate.id)
            return msgspec.structs.replace(trial, state=lost.state, reason=f"over many steps: {lost.reason}")
        if check.passed:
            return msgspec.structs.replace(trial, check=check, reason=check.why)
        self.workers.drop(trial.candidate.id)
        return msgspec.structs.replace(trial, state=State.WRONG, reason=check.why, check=check)

    def fetch(self, trial: Trial) -> None:
        """They are where they were made."""

    def nodes(self) -> tuple[NodeLine, ...]:
        """There is only this machine."""
        return ()

    def keep(self, ids: Sequence[str]) -> None:
        """Let go of every other candidate's worker; eager always stays."""
        self.workers.keep_only(ids)

    # ------------------------------------------------------------------------------------------------ many sizes

    def read_traffic(self, counts: Sequence[SizeCount], *, recorded: bool = False) -> Traffic:
        """Eager's worker knows the model."""
        replayed = self.workers.shipment.replay if self.workers.shipment is not None else ()
        request = ReadTraffic(
            counts=tuple(counts), recorded=recorded, requests=tuple(replayed), indices=self.workers.indices
        )
        with _eager_must_live():
            asked = self.workers.eager.ask(request, TrafficRead, limit_s=self.limits.inspect_s, doing="reading sizes")
        return answered(asked).traffic

    def prove_padding(self) -> PaddingProof:
        """In a process like eager's, in float64; a proof that fails or takes too long is none."""
        child = self.workers.spawn(EAGER, "padding", keep=False, builds=False)  # a proof may end it; eager's must live
        try:
            answered(child.ask(self.workers.opening(EAGER), Opened, limit_s=self.limits.open_s, doing="opening"))
            with self._building():
                asked = child.ask(ProvePadding(), PaddingProven, limit_s=self.limits.inspect_s, doing="proving padding")
            return answered(asked).proof
        except (Dead, CompilotError) as problem:
            return PaddingProof(refused=(PaddingLeak(inputs=(), why=f"the proof did not come to its end: {problem}"),))
        finally:
            child.kill()

    def check_padding(self, trial: Trial, padding: Padding) -> PaddingSeen:
        """In the candidate's worker; one that fails at it does not stand padding."""
        tolerance = tolerance_of(trial.candidate.settings.precision, self.tolerance)
        request = CheckPadding(padding=padding, tolerance=tolerance)
        try:
            with self._timing():  # what padding takes
                child = self._raced(trial.candidate)
                self.workers.work_on(child, OWN_CALLS)
                reply = child.ask(request, PaddingChecked, limit_s=self.limits.check_s, doing="checking padded calls")
                found = must(child, reply)
        except (Dead, Failure) as loss:
            self.workers.drop(trial.candidate.id)
            return PaddingSeen(PaddingLeak(inputs=(), why=loss.reason))
        return PaddingSeen(found.leak, found.pad_s)

    def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
        """Live workers, as in a race; they are given other work before the next one."""
        calls = self.workers.shipment.replay[: rules.requests] if self.workers.shipment is not None else ()
        self.keep([trial.candidate.id for trial in trials])
        with self._losses(), self._timing():
            arms = [self._raced(EAGER), *(self._raced(trial.candidate) for trial in trials)]
            total = min([self.workers.answer_requests(arm, calls) for arm in arms])  # the same number, of each
            ids = (EAGER.id, *(trial.candidate.id for trial in trials))
            return replaying.timed(
                arms, total, rules, lambda done, total: self.observer.racing(rules.purpose, ids, done, total)
            )

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        """Fresh processes that load the plans' files; they are gone afterwards."""
        self.workers.close()
        room = rules._replace(with_aa=rules.with_aa and len(arms) + 2 <= self.workers.at_once)
        ids = (EAGER.id, *([EAGER.id] if room.with_aa else []), *(arm.id for arm in arms))
        try:
            with self._losses(), self._timing():
                return replaying.replay(
                    self.workers, arms, room, lambda done, total: self.observer.racing(room.purpose, ids, done, total)
                )
        finally:
            self.workers.close()

    # ------------------------------------------------------------------------------------------------------ races

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """Race live workers: eager, eager again where memory allows, and the candidates."""
        with_aa, candidates = self._with_aa(trials), [trial.candidate for trial in trials]
        self.keep([c.id for c in candidates])
        ids = arm_ids(EAGER.id, trials, with_aa)
        start = Race(arms=ids, with_aa=with_aa, processes=(), purpose=rules.purpose)
        with self._losses(), self._timing() as timing:
            arms = [self._raced(EAGER), *([self.workers.spare()] if with_aa else [])]
            arms += [self._raced(candidate) for candidate in candidates]
            for arm in arms:
                self.workers.work_on(arm, Calls(rules.batch, tuple(rules.sizes.items())))
            samples, load = self._time(arms, ids, rules, seed=0)
        return msgspec.structs.replace(start, processes=(samples,), load=load, leases=(timing.record(),))

    def _raced(self, candidate: Candidate) -> Child:
        return self.workers.live(candidate.id) or self.workers.reopen(candidate)

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """Race fresh processes that reuse the trials' files; they are gone afterwards."""
        self.workers.close()
        with_aa = self._with_aa(trials)
        with self._losses(), self._timing() as timing:
            arms, warm = self._fresh_arms([trial.candidate for trial in trials], with_aa, rules.tail_s)
            pairs = RaceRules((rules.pairs,), for_s=rules.for_s, purpose=rules.purpose)
            ids = arm_ids(EAGER.id, trials, with_aa)
            samples, load = self._time(arms, ids, pairs, seed=rules.number)
        self.workers.close()
        return FreshSet(samples, with_aa, warm, load, (timing.record(),))

    def _with_aa(self, trials: Sequence[Trial]) -> bool:
        return len(trials) + 2 <= self.workers.at_once

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """A worker that fails in a race: eager's own ends the run, a candidate's is the candidate's story."""
        try:
            yield
        except (Dead, Failure) as loss:
            if loss.owner == EAGER.id:
                raise EnvironmentProblem(f"eager's own process failed in a race: {loss.reason}.") from loss
            self.workers.drop(loss.owner)
            raise ArmLost(loss.owner, loss.state, f"in a race: {loss.reason}") from loss

    def _fresh_arms(
        self, candidates: Sequence[Candidate], with_aa: bool, tail_s: float
    ) -> tuple[list[Child], dict[str, Measurement]]:
        """A new process per arm: they import side by side, but each answers its first call alone."""
        order = [EAGER, *([EAGER] if with_aa else []), *candidates]
        arms = [self.workers.begin_extra(f"{candidate.id}-confirm", candidate) for candidate in order]
        for arm in arms:
            must(arm, arm.receive(Opened, limit_s=self.limits.open_s))
        warm: dict[str, Measurement] = {}
        for arm, candidate in zip(arms, order, strict=True):
            built = self.workers.build(arm, self.limits, reuse=True)
            refuse_fallbacks(arm, built)
            warmed = self.workers.warm_up(arm, self.limits)
            if candidate.id not in warm:  # eager's twin has nothing to add
                warm[candidate.id] = with_tail(arm, steadied(first_call(built), warmed), tail_s)
        return arms, warm

    def _time(
        self, arms: Sequence[Child], ids: tuple[str, ...], rules: RaceRules, *, seed: int
    ) -> tuple[ProcessSamples, str]:
        """One set of processes through its rounds, and what was odd on the machine meanwhile."""
        end = time.monotonic() + rules.for_s
        watch = LoadWatch([arm.pid for arm in arms])
        samples = run_race(
            arms,
            looks=rules.looks,
            stop=lambda rounds: _is_settled(rounds, ids, rules),
            seed=seed,
            on_round=lambda done: self.observer.racing(rules.purpose, ids, done, max(rules.looks)),
            time_is_up=lambda: time.monotonic() > end,
        )
        return samples, watch.odd()


def _calls_of(candidate: Candidate) -> Calls:
    return Calls(sizes=tuple(candidate.sizes.items())) if candidate.sizes else OWN_CALLS


def _is_settled(rounds: Sequence[tuple[float, ...]], ids: tuple[str, ...], rules: RaceRules) -> bool:
    """At a look: is every arm's interval narrow, or the fastest one known? Both are fixed before the race begins."""
    if rules.half_width is None:
        return False
    so_far = Race(arms=ids, with_aa=len(set(ids)) < len(ids), processes=(ProcessSamples(rounds=tuple(rounds)),))
    columns = candidate_columns(so_far)
    if rules.until_sorted and leads(so_far, columns):
        return True
    return should_stop(so_far, columns, rules.half_width)[0]


@contextlib.contextmanager
def _eager_must_live() -> Iterator[None]:
    """Without eager's process there is no run."""
    try:
        yield
    except Dead as dead:
        raise EnvironmentProblem(f"eager's own process failed: {dead.reason}.") from dead


def _deadly_case(folder: Path, dead: Dead) -> str | None:
    """The case that eager's process was running when it died by a signal; None: none of ours."""
    if dead.state is not State.CRASHED:
        return None
    with contextlib.suppress(OSError):
        return (folder / RUNNING).read_text() or None
    return None


def _unready(reason: str) -> ToolchainReady:
    return ToolchainReady(wall_s=0.0, problem=reason)
