"""One candidate's trial: build -> check -> warm-up -> pairs with eager -> single calls, in its own process.

In: the run's workers, a job, what answers are held against. Out: its Trial, whatever happens. Every step gets what is
left of the time and no step more than its own limit. `build` may run beside other builds, `measure` has the machine.
Not covered: what the samples mean (verdict/).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec

from compilot.errors import EnvironmentProblem
from compilot.measure.racing import race
from compilot.measure.tolerance import tolerance_of
from compilot.records import Candidate, Measurement, Precision, Reference, State, Trial
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits
from compilot.trials.protocol import Built, CallsTimed, TimeCalls, Verified, Verify, Warmed
from compilot.trials.runner import BESIDE, TAIL_CALLS, Job
from compilot.trials.sharing import with_cold_start_of
from compilot.trials.workers import Failure, Workers, must, refuse_fallbacks
from compilot.verdict.constraints import held_to, too_slow

SCREENING_PAIRS = 8  # enough to sort candidates; who wins is decided in the race
FEWEST_SCREENING_PAIRS = 2  # of a model so slow that the trial's time is up
FIRST_LOOK = 3
UNCOUNTED_S = 10.0  # of a build: importing torch's compiler before its clock starts, letting it end afterwards
HOPELESS = 0.6  # of the best speed-up so far: three pairs scatter by 18 % each, so this one does not catch up
SCATTERED = 2.0  # an arm's median over its fastest batch: on a machine of one's own they are within some 20 %
DISTURBED = "something else used the machine while it was paired with eager"
SCREENING_TAIL_S = 0.7  # 660 calls of a millisecond; a slow model has no honest tail in any time that a trial has


class ScreeningRules(TypedDict):
    """How a trial's race against eager goes on."""

    looks: tuple[int, ...]
    stop: Callable[[Sequence[Sequence[float]]], bool]
    seed: int
    time_is_up: Callable[[], bool]
    discard: int
    fewest: int


class Judge(NamedTuple):
    """What answers are held against."""

    reference: Reference | None
    tolerance: float | None  # of lower precisions; None: each one's default
    max_error: float | None = None  # of every candidate, whatever its precision; None: the usual limits
    folder: Path = Path()  # of the reference


class Attempt:
    """A trial while it goes on: each step adds to the record, and a failure ends it."""

    def __init__(self, workers: Workers, job: Job, judge: Judge, files_of: Trial | None = None) -> None:
        """files_of: a trial with the same program, whose files it starts from instead of building."""
        self._workers = workers
        self._job = job
        self._judge = judge
        self._files_of = files_of
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start the process, unless eager's lives; in the thread that stays: a worker ends with its thread."""
        candidate, workers = self._job.candidate, self._workers
        self.starved = False  # it ended for want of time or memory
        self._begin = self._built = time.monotonic()
        self._child: Child | None = None
        log = workers.run_dir.log_name(candidate.id)
        limit_s = self._job.limit_s
        self.trial = Trial(candidate=candidate, state=State.OK, reason="", stderr_log=log, limit_s=limit_s)
        self._opened = candidate.is_eager and workers.live(candidate.id) is not None
        if not self._opened:
            with self._step("opening", "starting its process"):
                workers.drop(candidate.id)  # of an earlier trial: this one's start is cold
                workers.clear(candidate)
                if self._files_of is not None and not workers.copied(self._files_of.candidate, candidate):
                    self._files_of = None  # it builds its own
                workers.spawn(candidate, candidate.id)

    @property
    def candidate(self) -> Candidate:
        """Whose trial it is."""
        return self._job.candidate

    def build(self, *, beside: bool = False) -> None:
        """Open the model, build and answer the first call; beside: other builds are under way."""
        with self._story():
            self._open_and_build(beside)
        self._built = time.monotonic()

    def doubt(self, what: str) -> None:
        """Add a doubt to what the build cost."""
        first = self.trial.measurement
        if first is not None and what not in first.doubts:
            self._know(measurement=msgspec.structs.replace(first, doubts=(*first.doubts, what)))

    def measure(self) -> Trial:
        """Check the answers, then time them; the trial as it is in the end."""
        self._begin += time.monotonic() - self._built  # while others were measured
        if self.trial.state is State.OK:  # so far
            with self._story():
                self._check()
                self._warm()
                if not self._job.candidate.is_eager:
                    with self._step("pairing", "pairing with eager"):
                        arms = [self._workers.eager, self._worker]
                        rounds = self._undisturbed(arms, race(arms, **self._screening_rules()).rounds)
                    self._know(screening=tuple((row[0], row[1]) for row in rounds))
                self._single_calls()
        if self.trial.state is not State.OK and not self.trial.candidate.is_eager:
            self._workers.drop(self.trial.candidate.id)
        check = self.trial.check
        reason = self.trial.reason or (check.why if check is not None else "")
        return msgspec.structs.replace(self.trial, reason=reason, wall_s=time.monotonic() - self._begin)

    # ------------------------------------------------------------------------------------------------------ steps

    def _open_and_build(self, beside: bool) -> None:
        candidate = self._job.candidate
        child = self._workers.live(candidate.id)
        if child is None or not self._opened:
            with self._step("opening"):
                child = self._workers.open(candidate, self._limits())
        with self._step("building", "building and answering the first call"):
            built = self._built_in_time(child, beside)
        first = first_call(built)
        if self._files_of is not None:
            self._with_files_of(self._files_of, first, built)
            refuse_fallbacks(child, built)
            self._child = child
            return
        self._know(measurement=msgspec.structs.replace(first, doubts=(BESIDE,)) if beside else first)
        if built.same_as is not None:
            self._know(same_as=built.same_as, code_sha256=built.code_sha256)
            reason = f"generates the same program as candidate {built.same_as}; not measured twice"
            raise Failure(candidate.id, State.PRUNED, reason)
        limit_s = self._cold_limit_s
        if limit_s is not None and built.cold_s > limit_s:
            raise self._too_slow(limit_s, beside, built.cold_s)
        refuse_fallbacks(child, built)
        self._know(
            guard=built.guard,
            artifacts=built.artifacts,
            code_sha256=built.code_sha256,
            frozen_weights=built.frozen_weights,
            weights_sha256=built.weights_sha256,
        )
        self._child = child

    def _with_files_of(self, other: Trial, first: Measurement, built: Built) -> None:
        """What is known of a start from another one's files: the rest is as that one built it."""
        assert other.measurement is not None
        cold = with_cold_start_of(other.measurement, first)
        doubts = tuple(doubt for doubt in other.measurement.doubts if doubt == BESIDE)
        self._know(
            files_of=other.candidate.id,
            measurement=msgspec.structs.replace(cold, doubts=doubts),
            guard=built.guard,
            artifacts=other.artifacts,
            code_sha256=built.code_sha256,  # the other one's stands for another process
            frozen_weights=built.frozen_weights,
            weights_sha256=other.weights_sha256,
        )

    def _built_in_time(self, child: Child, beside: bool) -> Built:
        """The build, which is ended where the user's limit on cold starts is the first to be reached."""
        limits, known, limit_s = self._limits(), self._job.known_code, self._cold_limit_s
        if self._files_of is not None:  # that one kept the limit
            return self._workers.build(child, limits, reuse=True)
        if limit_s is None or limits.build_s <= limit_s + UNCOUNTED_S:
            return self._workers.build(child, limits, known=known)
        try:
            return self._workers.build(child, limits._replace(build_s=limit_s + UNCOUNTED_S), known=known)
        except Dead as dead:
            if dead.state is State.TIMED_OUT:
                raise self._too_slow(limit_s, beside) from dead
            raise

    @property
    def _cold_limit_s(self) -> float | None:
        """Eager is what the others are judged by: it has none."""
        return None if self._job.candidate.is_eager else self._workers.limits.cold_s

    def _too_slow(self, limit_s: float, beside: bool, cold_s: float | None = None) -> Failure:
        self.starved = beside  # the other builds may be to blame
        return Failure(self._job.candidate.id, State.INFEASIBLE, too_slow(limit_s, cold_s))

    def _check(self) -> None:
        if self._job.candidate.is_eager:  # it is what the others are judged by
            return
        assert self._judge.reference is not None  # `inspect` comes first
        request = Verify(
            references=str(self._judge.folder),
            reference=self._judge.reference,
            tolerance=tolerance_of(precision_in(self._job.candidate), self._judge.tolerance),
        )
        child = self._worker
        with self._step("checking", "checking its answers"):
            reply = child.ask(request, Verified, limit_s=self._limits().check_s, doing="checking")
        check = held_to(must(child, reply).check, self._judge.max_error)
        self._know(check=check)
        if not check.passed:
            raise Failure(child.owner, State.WRONG, check.why)

    def _warm(self) -> None:
        with self._step("warming up", "warming up"):
            warmed = self._workers.warm_up(self._worker, self._limits())
        assert self.trial.measurement is not None  # of the first call
        self._know(measurement=steadied(self.trial.measurement, warmed))

    def _undisturbed(self, arms: list[Child], rounds: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
        """These rounds with eager, or others where something else had the machine meanwhile: eager's threads suffer
        from that most, so a candidate would look many times as fast as it is.
        """
        if not is_disturbed(rounds) or self._left_s() < 0:
            return rounds
        again = race(arms, **self._screening_rules()).rounds
        if is_disturbed(again):
            self.doubt(DISTURBED)
        return again

    def _screening_rules(self) -> ScreeningRules:
        """A few rounds; fewer for a candidate that is hopeless after the first of them, or where time is up."""
        return ScreeningRules(
            looks=(FIRST_LOOK, SCREENING_PAIRS),
            stop=lambda rounds: len(rounds) >= SCREENING_PAIRS or is_hopeless(rounds, self._job.best_ratio),
            seed=0,
            time_is_up=lambda: self._left_s() < 0,
            discard=1,
            fewest=FEWEST_SCREENING_PAIRS,
        )

    def _single_calls(self) -> None:
        """For the tail; not of a hopeless one, which nobody will ask about."""
        pairs = self.trial.screening
        hopeless = bool(pairs) and len(pairs) < SCREENING_PAIRS and is_hopeless(pairs, self._job.best_ratio)
        assert self.trial.measurement is not None
        with self._step("single calls", "timing single calls"):
            tail_s = 0.0 if hopeless else SCREENING_TAIL_S
            measured = with_tail(self._worker, self.trial.measurement, tail_s)
        self._know(measurement=measured)
        if not self._job.candidate.is_eager and (why := too_large(measured, self._workers.limits.memory_bytes)):
            raise Failure(self._job.candidate.id, State.INFEASIBLE, why)

    # --------------------------------------------------------------------------------------------------- the story

    @contextmanager
    def _story(self) -> Iterator[None]:
        """Steps, of which the first that fails is the end."""
        try:
            yield
        except Failure as failure:
            self._know(state=failure.state, reason=failure.reason)
        except Dead as dead:
            if dead.owner != self._job.candidate.id:  # eager's, while it was being paired with this candidate
                raise EnvironmentProblem(f"eager's own process failed: {dead.reason}.") from dead
            self.starved = dead.state in (State.TIMED_OUT, State.INFEASIBLE)  # the latter: of memory
            self._know(state=dead.state, reason=dead.reason)

    @contextmanager
    def _step(self, name: str, doing: str = "") -> Iterator[None]:
        """A step whose seconds are kept; `doing`: what is shown meanwhile."""
        if doing:
            self._workers.observer.doing(doing)
        begin = time.monotonic()
        try:
            yield
        finally:
            known = self.trial.steps_s
            self._know(steps_s={**known, name: known.get(name, 0.0) + time.monotonic() - begin})

    def _know(self, **found: Any) -> None:
        self.trial = msgspec.structs.replace(self.trial, **found)

    @property
    def _worker(self) -> Child:
        assert self._child is not None  # no step comes before the build
        return self._child

    def _left_s(self) -> float:
        return self._begin + self._job.limit_s - time.monotonic()

    def _limits(self) -> Limits:
        return self._workers.limits.capped(self._left_s())


def precision_in(candidate: Candidate) -> Precision:
    """What it computes in: its settings', or that of a training step's own autocast."""
    return candidate.settings.precision if candidate.step.autocast is Precision.AS_IS else candidate.step.autocast


def first_call(built: Built) -> Measurement:
    """What the build cost."""
    return Measurement(
        cold_s=built.cold_s,
        cold_cache=built.cold_cache,
        cold_cpu_s=built.cpu_s,
        compiler_runs=built.compiler_runs,
        shared_s=built.shared_s,
        for_others_s=built.for_others_s,
        import_s=built.import_s,
    )


def is_disturbed(rounds: Sequence[Sequence[float]]) -> bool:
    """Whether an arm's batches scatter more than those of a machine that has nothing else to do."""
    return any(statistics.median(column) > SCATTERED * min(column) for column in zip(*rounds, strict=True))


def is_hopeless(rounds: Sequence[Sequence[float]], best_ratio: float | None) -> bool:
    """Whether a candidate is far behind the best so far; rounds: eager's and its own seconds per call."""
    ratios = [row[0] / row[1] for row in rounds if row[1] > 0]
    return best_ratio is not None and bool(ratios) and statistics.median(ratios) < HOPELESS * best_ratio


def steadied(first: Measurement, warmed: Warmed) -> Measurement:
    """The measurement of a warm worker, before single calls are timed."""
    return msgspec.structs.replace(
        first,
        warm_up=warmed.warm_up,
        calls_per_batch=warmed.calls_per_batch,
        samples_per_call=warmed.samples_per_call,
        request_s=warmed.request_s,
        model_s=warmed.model_s,
        peak_rss_bytes=warmed.peak_rss_bytes,
        steady_rss_bytes=warmed.rss_bytes,
        doubts=(*first.doubts, *(() if warmed.warm_up.steady else ("unsteady",))),
    )


def with_tail(child: Child, steady: Measurement, for_s: float) -> Measurement:
    """The measurement with single calls, for the tail."""
    tail = must(child, child.ask(TimeCalls(calls=TAIL_CALLS, for_s=for_s), CallsTimed, limit_s=120.0, doing="timing"))
    peak = max(steady.peak_rss_bytes, tail.peak_rss_bytes)
    return msgspec.structs.replace(steady, call_s=tail.call_s, peak_rss_bytes=peak)


def too_large(measured: Measurement, limit_bytes: int | None) -> str:
    """Why a candidate uses too much memory, "" where it does not: looks while it runs may have missed the peak."""
    if limit_bytes is None or measured.peak_rss_bytes <= limit_bytes:
        return ""
    peak, steady, limit = (n / 2**20 for n in (measured.peak_rss_bytes, measured.steady_rss_bytes, limit_bytes))
    return f"peak memory {peak:.0f} MiB ({steady:.0f} MiB steady) is above the limit of {limit:.0f} MiB"
