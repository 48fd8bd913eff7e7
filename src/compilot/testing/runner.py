"""A runner that runs nothing: candidates behave as they are told, and time passes on a clock of its own.

In: a fate for each candidate. Out: what a real runner gives, in milliseconds, the same for the same seed. For tests of
searches, of the story of `tune`, and of whatever speaks to a `Runner`. Give its clock to the budget:
`Budget(60.0, clock=runner.clock)`. Not covered: files; a fake trial has none.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.records import (
    CallSizes,
    Candidate,
    Check,
    Diagnosis,
    Fingerprint,
    Guard,
    Kind,
    LossCurve,
    MachineFingerprint,
    Measurement,
    ModelFingerprint,
    NodeLine,
    Padding,
    PaddingLeak,
    PaddingProof,
    ProcessSamples,
    Race,
    Shipment,
    SizeCount,
    State,
    Traffic,
    Trial,
    WarmUp,
    WorkloadRef,
)
from compilot.testing.fake_sizes import FakeSizes, with_guard
from compilot.trials.runner import (
    BESIDE,
    Arm,
    ArmLost,
    ArmSeen,
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
from compilot.verdict.constraints import held_to, too_slow

SCREENING_PAIRS = 8
TAIL_CALLS = 64


class Fate(NamedTuple):
    """How one candidate behaves."""

    speed: float = 1.0  # times as fast as eager
    state: State = State.OK
    reason: str = ""
    cold_s: float = 1.0  # build and first call; a job with less time ends as timed-out
    warm_s: float = 0.1  # first call with the files at hand
    rss_bytes: int = 1 << 28  # in a process that loads what was built
    build_bytes: int = 0  # at the peak of the build, where that is more
    code: str | None = None  # a candidate with the same code as an earlier one is pruned
    lost: str = ""  # why it fails in a race, though it passed its trial
    error: float = 0.0  # relative, against float64
    astray: str = ""  # of a training: why its loss over many steps is not eager's
    tail: float = 1.0  # one call in fifty takes this many times as long


Fates = Mapping[str, Fate] | Callable[[Candidate], Fate]


class FakeRunner:
    """Stands in for a Runner."""

    def __init__(
        self,
        fates: Fates,
        *,
        eager_call_s: float = 0.010,
        noise: float = 0.01,
        seed: int = 0,
        slots: int = 1,
        workers: int = 99,
        open_s: float = 1.0,
        diagnosis: Diagnosis | None = None,
        max_compile_s: float | None = None,
        max_error: float | None = None,
        tail_calls: int | None = None,
        batch_cost: Callable[[int], float] = float,
        sizes: FakeSizes | None = None,
    ) -> None:
        """fates: by label or engine name, or a function of the candidate; who has none is infeasible.

        Eager needs none; its own says what it takes, but not how fast it is. max_compile_s, max_error: the user's
        limits. tail_calls: single calls that are timed of each candidate. batch_cost: how many times as long a call
        with so many samples takes, in a race at a batch size. sizes: of a model whose calls have many.
        """
        self._fates = fates
        self._eager_call_s = eager_call_s
        self._noise = noise
        self._seed = seed
        self._slots = slots
        self._capacity = Capacity(workers, open_s)
        self._max_compile_s = max_compile_s
        self._max_error = max_error
        self._tail_calls = TAIL_CALLS if tail_calls is None else tail_calls
        self._batch_cost = batch_cost
        self._sizes = sizes
        self._requests: tuple[CallSizes, ...] = ()
        self._diagnosis = diagnosis or Diagnosis(cores=2, threads=2)
        self._kind = Kind.INFERENCE if self._diagnosis.step is None else Kind.TRAINING
        self._jobs: list[Job] = []
        self._now_s = 0.0
        self.tried: list[str] = []  # labels, in order
        self.raced: list[tuple[str, ...]] = []  # labels of each race
        self.confirmed: list[tuple[str, ...]] = []  # of each set of fresh processes
        self.replayed: list[tuple[str, ...]] = []  # ids of the arms of each replay
        self.raced_at: list[dict[str, int]] = []  # sizes of each race at sizes
        self.rebuilt: list[str] = []
        self.closed = False

    def clock(self) -> float:
        """Seconds that have passed here."""
        return self._now_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True

    def open(self, workload: Shipment) -> Model:
        """Nothing is opened."""
        self._now_s += self._capacity.open_s
        self._requests = workload.replay
        return Model(WorkloadRef(label="Fake", target=workload.target, kind=self._kind))

    def inspect(self) -> Inspection:
        """The diagnosis it was given."""
        return Inspection(self._diagnosis, fake_fingerprint())

    @property
    def capacity(self) -> Capacity:
        """As it was told."""
        return self._capacity

    def free_slots(self) -> int:
        """As it was told."""
        return self._slots

    @property
    def pending(self) -> list[str]:
        """Those that nobody has asked for yet."""
        return [job.candidate.id for job in self._jobs]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take these jobs."""
        self._jobs += jobs

    def completed(self) -> Iterator[Trial]:
        """Their trials, one after another."""
        jobs, self._jobs = self._jobs, []
        builds_s = [self._build_s(job) for job in jobs]
        self._now_s += max(builds_s, default=0.0)  # they overlap
        for job in jobs:
            self.tried.append(job.candidate.label)
            yield self._trial(job, beside=len(jobs) > 1)

    def give_up(self) -> bool:
        """Trials take no time here: none is ever under way."""
        return True

    def keep(self, ids: Sequence[str]) -> None:
        """Nobody is alive."""

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """Samples around each candidate's speed, to the last look."""
        candidates = [trial.candidate for trial in trials]
        self.raced.append(tuple(c.label for c in candidates))
        self._lose(candidates)
        with_aa = self._with_aa(candidates)
        samples = self._samples(candidates, with_aa, max(rules.looks), f"race {rules.purpose}")
        if rules.batch is not None:
            samples = _longer(samples, self._batch_cost(rules.batch))
        if rules.sizes and self._sizes is not None:
            self.raced_at.append(dict(rules.sizes))
            samples = _longer(samples, self._sizes.times(rules.sizes))
        ids = arm_ids(EAGER.id, trials, with_aa)
        return Race(arms=ids, with_aa=with_aa, processes=(samples,), purpose=rules.purpose)

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """The same, and each one's warm start."""
        candidates = [trial.candidate for trial in trials]
        self.confirmed.append(tuple(c.label for c in candidates))
        self._lose(candidates)
        with_aa = self._with_aa(candidates)
        self._now_s += self._capacity.open_s * (len(candidates) + 2)
        samples = self._samples(candidates, with_aa, rules.pairs, f"set {rules.number}")
        warm = {c.id: self._measurement(c, warm=True) for c in (EAGER, *candidates)}
        return FreshSet(samples, with_aa, warm)

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """The same figures without the doubt."""
        self._now_s += self._capacity.open_s + self._fate(trial.candidate).cold_s
        self.rebuilt.append(trial.candidate.label)
        return msgspec.structs.replace(trial, measurement=self._measurement(trial.candidate))

    def over_many_steps(self, trial: Trial, limit_s: float) -> Trial:
        """As its fate says: its losses are eager's, or leave their band."""
        self._now_s += limit_s
        astray = self._fate(trial.candidate).astray
        so_far = trial.check or Check(passed=True, why="", reference="float64")
        losses = (2.0, 1.0, 0.5)
        curve = LossCurve(losses=losses, eager=losses, exact=losses, low=losses, high=losses, within=not astray)
        check = msgspec.structs.replace(so_far, passed=not astray, why=astray or so_far.why, curve=curve)
        state = State.WRONG if astray else trial.state
        return msgspec.structs.replace(trial, state=state, reason=astray or trial.reason, check=check)

    def fetch(self, trial: Trial) -> None:
        """There are no files."""

    def nodes(self) -> tuple[NodeLine, ...]:
        """There is no cluster."""
        return ()

    # ------------------------------------------------------------------------------------------------- many sizes

    def read_traffic(self, counts: Sequence[SizeCount], *, recorded: bool = False) -> Traffic:
        """As it was told."""
        assert self._sizes is not None
        return self._sizes.traffic(counts, self._requests)

    def prove_padding(self) -> PaddingProof:
        """As it was told."""
        assert self._sizes is not None
        return self._sizes.proof()

    def check_padding(self, trial: Trial, padding: Padding) -> PaddingSeen:
        """As it was told."""
        assert self._sizes is not None
        if trial.candidate.label in self._sizes.leaking:
            return PaddingSeen(PaddingLeak(inputs=(), why="output changes at size 1, padded to 2"))
        return PaddingSeen(None, self._sizes.pad_s)

    def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
        """Each request answered by eager and by the program of each trial."""
        assert self._sizes is not None
        candidates = [EAGER, *(trial.candidate for trial in trials)]
        random_ = self._random(f"requests {[candidate.id for candidate in candidates]}")
        rows = tuple(
            tuple(
                self._sample(one, random_) * self._sizes.times(call.sizes) + self._change_s(one) for one in candidates
            )
            for call in self._requests[: rules.requests]
        )
        self._now_s += sum(map(sum, rows))
        return ProcessSamples(rounds=rows)

    def _change_s(self, candidate: Candidate) -> float:
        """What another size than before costs its program: nothing where it has one size."""
        assert self._sizes is not None
        return 0.0 if candidate.sizes else self._sizes.change_s.get(candidate.settings.engine, 0.0)

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        """Each request answered by the entry that takes its sizes, eager where none does."""
        self.replayed.append(tuple(arm.id for arm in arms))
        for arm in arms:
            for entry in arm.entries:
                if lost := self._fate(entry.candidate).lost:
                    raise ArmLost(arm.id, State.CRASHED, lost)
        with_aa = rules.with_aa and len(arms) + 2 <= self._capacity.workers
        every = [Arm(EAGER.id, ()), *([Arm(EAGER.id, ())] if with_aa else []), *arms]
        random_ = self._random(f"replay {rules.number} {[arm.id for arm in every]}")
        requests = self._requests[: rules.requests]
        rows = tuple(tuple(self._answered(arm, call, random_)[0] for arm in every) for call in requests)
        self._now_s += self._capacity.open_s * len(every) + sum(map(sum, rows))
        seen = {arm.id: self._seen(arm, requests, random_) for arm in every}
        return FreshReplay(ProcessSamples(rounds=rows), with_aa, seen)

    def _answered(self, arm: Arm, call: CallSizes, random_: random.Random) -> tuple[float, bool]:
        """The seconds of a request, and whether one of the arm's programs answered it."""
        assert self._sizes is not None
        who, times, pads = self._sizes.answering(arm.entries, call.sizes)
        seconds = self._sample(EAGER if who is None else who, random_) * times
        more_s = (self._sizes.pad_s if pads else 0.0) + (self._change_s(who) if who is not None else 0.0)
        return seconds + more_s, who is not None

    def _seen(self, arm: Arm, requests: Sequence[CallSizes], random_: random.Random) -> ArmSeen:
        fast = sum(self._answered(arm, call, random_)[1] for call in requests)
        rss = max(self._fate(entry.candidate).rss_bytes for entry in arm.entries) if arm.entries else 1 << 28
        return ArmSeen(0.1 * len(arm.entries), fast / len(requests) if arm.entries else None, 0, rss)

    # --------------------------------------------------------------------------------------------------- figures

    def _fate(self, candidate: Candidate) -> Fate:
        if callable(self._fates):
            return Fate(cold_s=self._eager_call_s) if candidate.is_eager else self._fates(candidate)
        if candidate.is_eager:
            return self._fates.get("eager", Fate(cold_s=self._eager_call_s))._replace(speed=1.0)
        unknown = Fate(state=State.INFEASIBLE, reason="nobody said how it behaves")
        return self._fates.get(candidate.label, self._fates.get(candidate.settings.engine, unknown))

    def _trial(self, job: Job, *, beside: bool) -> Trial:
        candidate, fate = job.candidate, self._fate(job.candidate)
        wall_s = self._build_s(job)
        begin = Trial(candidate=candidate, state=fate.state, reason=fate.reason, wall_s=wall_s, limit_s=job.limit_s)
        if wall_s < fate.cold_s and wall_s == self._cold_limit_s(candidate):
            return msgspec.structs.replace(begin, state=State.INFEASIBLE, reason=too_slow(wall_s))
        if wall_s < fate.cold_s:
            reason = f"building took longer than {wall_s:.0f} s and was ended"
            return msgspec.structs.replace(begin, state=State.TIMED_OUT, reason=reason)
        if fate.state is not State.OK:
            return begin
        if fate.code is not None and (same := job.known_code.get(fate.code)) is not None:
            reason = f"generates the same program as candidate {same}; not measured twice"
            return msgspec.structs.replace(begin, state=State.PRUNED, reason=reason, same_as=same)
        check = Check(passed=True, why="as it was told", reference="float64", relative_error=fate.error)
        if not candidate.is_eager:
            check = held_to(check, self._max_error)
        if not check.passed:
            return msgspec.structs.replace(begin, state=State.WRONG, reason=check.why, check=check)
        measured = self._measurement(candidate)
        if beside:
            measured = msgspec.structs.replace(measured, doubts=(BESIDE,))
        rows = () if candidate.is_eager else self._samples([candidate], False, SCREENING_PAIRS, "screening").rounds
        return msgspec.structs.replace(
            begin,
            measurement=measured,
            check=check,
            code_sha256=fate.code,
            guard=with_guard(Guard(positional=1, keywords=(), tensors=()), self._sizes, candidate),
            screening=tuple((row[0], row[1]) for row in rows),
        )

    def _build_s(self, job: Job) -> float:
        """How long a build goes on: until it is done, or a limit ends it."""
        limit_s = self._cold_limit_s(job.candidate)
        return min(self._fate(job.candidate).cold_s, job.limit_s, math.inf if limit_s is None else limit_s)

    def _cold_limit_s(self, candidate: Candidate) -> float | None:
        return None if candidate.is_eager else self._max_compile_s

    def _measurement(self, candidate: Candidate, *, warm: bool = False) -> Measurement:
        fate, random_ = self._fate(candidate), self._random(f"calls {candidate.id} {warm}")
        return Measurement(
            cold_s=fate.warm_s if warm else fate.cold_s,
            cold_cache=not warm,
            warm_up=WarmUp(calls=10, wall_s=1.0, steady=True),
            call_s=tuple(
                self._sample(candidate, random_) * (fate.tail if number % 50 == 0 else 1.0)
                for number in range(self._tail_calls)
            ),
            peak_rss_bytes=fate.rss_bytes if warm else max(fate.rss_bytes, fate.build_bytes),
            steady_rss_bytes=fate.rss_bytes,
        )

    def _samples(self, candidates: Sequence[Candidate], with_aa: bool, rounds: int, what: str) -> ProcessSamples:
        arms = [EAGER, *([EAGER] if with_aa else []), *candidates]
        random_ = self._random(f"{what} {[arm.id for arm in arms]}")
        rows = tuple(tuple(self._sample(arm, random_) for arm in arms) for _ in range(rounds))
        self._now_s += sum(map(sum, rows))
        return ProcessSamples(rounds=rows)

    def _sample(self, candidate: Candidate, random_: random.Random) -> float:
        return self._eager_call_s / self._fate(candidate).speed * random_.lognormvariate(0.0, self._noise)

    def _random(self, what: str) -> random.Random:
        return random.Random(zlib.crc32(f"{self._seed} {what}".encode()))

    def _with_aa(self, candidates: Sequence[Candidate]) -> bool:
        return len(candidates) + 2 <= self._capacity.workers

    def _lose(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            if lost := self._fate(candidate).lost:
                raise ArmLost(candidate.id, State.CRASHED, lost)


def _longer(samples: ProcessSamples, times: float) -> ProcessSamples:
    return ProcessSamples(rounds=tuple(tuple(one * times for one in row) for row in samples.rounds))


def fake_fingerprint() -> Fingerprint:
    """Of a machine and a model that do not exist."""
    machine = MachineFingerprint(
        torch="0", python="0", platform="none", glibc="none", cpu_model="none", cpu_isa=(), cores=2, threads=2
    )
    model = ModelFingerprint(
        class_name="Fake",
        code_sha256="0",
        structure_sha256="0",
        parameters_sha256="0",
        parameter_count=0,
        parameter_bytes=0,
    )
    return Fingerprint(machine=machine, model=model)
