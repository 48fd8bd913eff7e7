"""The runner on this machine: one child process per candidate.

In: candidates. Out: trials, then races over live workers. Covered: a trial's record, whatever happens in it; races with
an A/A arm; confirmation in fresh processes that reuse the trial's files. Not covered: the processes themselves
(workers.py), a trial's steps (trying.py), which candidate comes next (candidates/), what the samples mean (verdict/).
Timing never runs side by side. A cluster runner implements the same methods.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.measure.racing import race as run_race
from compilot.progress import Observer
from compilot.records import Candidate, Measurement, ProcessSamples, Race, Reference, Shipment, State, Trial
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits
from compilot.trials.load import LoadWatch
from compilot.trials.opening import ask_to_open
from compilot.trials.protocol import (
    Failed,
    Inspect,
    Inspected,
    Opened,
    PrepareToolchain,
    ToolchainReady,
)
from compilot.trials.refusing import refusal
from compilot.trials.trying import Judge, attempt, timed
from compilot.trials.workers import Failure, Workers, answered

TAIL_S = 12.0  # 660 calls of an 18 ms model

Stop = Callable[[Race], bool]


class ArmLost(Exception):
    """A candidate that passed its trial failed in a race: the race must be run again without it."""

    def __init__(self, owner: str, state: State, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason


class LocalRunner(Workers):
    """Runs trials and races on this machine."""

    def __init__(
        self, shipment: Shipment, run_dir: Path, *, limits: Limits, observer: Observer, tolerance: float | None = None
    ) -> None:
        super().__init__(shipment, run_dir, limits=limits, observer=observer)
        self.tolerance = tolerance  # of lower precisions; None: each one's default
        self.reference: Reference | None = None
        self.dynamic = False  # whether the user declared which dimensions vary
        self.toolchain: ToolchainReady | None = None  # None: not tried yet

    # ------------------------------------------------------------------------------------------------ eager first

    def open_eager(self) -> tuple[Opened, Inspected]:
        """Start the eager worker, which stays for the whole run: baseline of every pair, maker of the references."""
        return self.start_eager(), self.inspect_eager()

    def start_eager(self) -> Opened:
        """The eager worker, with the model in it."""
        begin = time.monotonic()
        with _eager_must_live():
            child = self.spawn(EAGER, "eager")
            opened: Opened = answered(ask_to_open(child, self.limits, **self.open_fields(EAGER)))
        self.opened_in_s = time.monotonic() - begin
        return opened

    def inspect_eager(self) -> Inspected:
        """Run eager and its float64 self: what every candidate is held against."""
        self.observer.doing("running eager and its float64 reference")
        where = str(self.run_dir / "reference")
        self.eager.doing = "running eager"
        with _eager_must_live():
            asked = self.eager.ask(Inspect, Inspected, limit_s=self.limits.inspect_s, references=where)
        inspected: Inspected = answered(asked)
        self.reference = inspected.reference
        self.indices = inspected.diagnosis.indices
        self.dynamic = inspected.diagnosis.dynamic
        return inspected

    def prepare_toolchain(self) -> ToolchainReady:
        """Build the shared C++ header in a worker of its own; its cost is nobody's compile time."""
        with self.toolchain_beside() as ready:
            return ready()

    @contextlib.contextmanager
    def toolchain_beside(self) -> Iterator[Callable[[], ToolchainReady]]:
        """The same while the caller does something else; what it gets waits for the compiler."""
        child = self.spawn(EAGER, "toolchain", keep=False)
        try:
            child.send(PrepareToolchain, ToolchainReady, doing="trying the C++ compiler")
            yield lambda: self._toolchain(child)
        finally:
            child.kill()

    def _toolchain(self, child: Child) -> ToolchainReady:
        try:
            reply = child.receive(limit_s=self.limits.prepare_s)
            self.toolchain = reply if isinstance(reply, ToolchainReady) else _unready(reply.reason)
        except Dead as dead:
            self.toolchain = _unready(dead.reason)
        return self.toolchain

    # ----------------------------------------------------------------------------------------------------- trials

    def free_slots(self) -> int:
        """Trials are built one at a time: a cold start timed beside another build would be a lie."""
        return 1

    def trial(self, candidate: Candidate, known_code: dict[str, str], cap_s: float) -> Trial:
        """Try one candidate in its own process; whatever happens is the trial's story."""
        if why := refusal(candidate, self.indices, dynamic=self.dynamic):
            return Trial(candidate=candidate, state=State.INFEASIBLE, reason=why)
        begin = time.monotonic()
        log = Path("logs") / f"{candidate.id}.log"
        fields: dict[str, Any] = {}
        if not candidate.is_eager:
            self.clear(candidate)
        try:
            judge = Judge(self.reference, self.tolerance)
            fields = attempt(self, candidate, judge, known_code, begin + cap_s)
            state, reason = State.OK, ""
        except Failure as failure:
            state, reason, fields = failure.state, failure.reason, failure.known
        except Dead as dead:
            if dead.owner != candidate.id:  # eager's, while it was being paired with this candidate
                raise EnvironmentProblem(f"eager's own process failed: {dead.reason}.") from dead
            state, reason = dead.state, dead.reason
        if state is not State.OK and not candidate.is_eager:
            self.drop(candidate.id)
        return Trial(
            candidate=candidate,
            state=state,
            reason=reason or _summary(fields),
            stderr_log=str(log),
            wall_s=time.monotonic() - begin,
            **fields,
        )

    # ------------------------------------------------------------------------------------------------------ races

    def race(
        self,
        candidates: Sequence[Candidate],
        *,
        looks: Sequence[int],
        stop: Stop,
        purpose: str,
        for_s: float = math.inf,
    ) -> Race:
        """Race live workers: eager, eager again where memory allows, and the candidates."""
        with_aa = len(candidates) + 2 <= self.workers_at_once
        self.keep_only([c.id for c in candidates])
        start = Race(arms=_arm_ids(candidates, with_aa), with_aa=with_aa, processes=(), purpose=purpose)
        with self._losses():
            arms = [self.eager, *([self.spare()] if with_aa else [])]
            arms += [self.live(c.id) or self.reopen(c) for c in candidates]
            return self._run(arms, start, looks, stop, for_s)

    def confirm(
        self,
        candidates: Sequence[Candidate],
        *,
        pairs: int,
        enough: Callable[[Race], bool],
        for_s: Callable[[Race], float] = lambda race: math.inf,
        tail_s: float = TAIL_S,
    ) -> tuple[Race, dict[str, list[Measurement]]]:
        """Race fresh processes that reuse the trials' files, set after set, until `enough` says so."""
        self.close()
        with_aa = len(candidates) + 2 <= self.workers_at_once
        ids = _arm_ids(candidates, with_aa)
        race = Race(arms=ids, with_aa=with_aa, processes=(), purpose="confirm")
        warm: dict[str, list[Measurement]] = {}
        while not enough(race):
            with self._losses():
                arms = self._fresh_arms(candidates, with_aa, warm, tail_s)
                race = self._run(arms, race, (pairs,), lambda _: True, for_s(race))
            self.close()
        return race, warm

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """A worker that fails in a race: eager's own ends the run, a candidate's is the candidate's story."""
        try:
            yield
        except (Dead, Failure) as loss:
            if loss.owner == EAGER.id:
                raise EnvironmentProblem(f"eager's own process failed in a race: {loss.reason}.") from loss
            self.drop(loss.owner)
            raise ArmLost(loss.owner, loss.state, f"in a race: {loss.reason}") from loss

    def _fresh_arms(
        self, candidates: Sequence[Candidate], with_aa: bool, warm: dict[str, list[Measurement]], tail_s: float
    ) -> list[Child]:
        """A new process per arm: they import side by side, but each answers its first call alone."""
        order = [EAGER, *([EAGER] if with_aa else []), *candidates]
        arms = [self.begin_extra(f"{candidate.id}-confirm", candidate) for candidate in order]
        for arm in arms:
            reply = arm.receive(limit_s=self.limits.open_s)
            if isinstance(reply, Failed):
                raise Failure(arm.owner, reply.state, reply.reason)
        for arm, candidate in zip(arms, order, strict=True):
            story = self.build(arm, candidate, {}, self.limits, reuse=True)
            warmed = self.warm_up(arm, self.limits)
            if arm is arms[1] and with_aa:
                continue
            for_s = tail_s if candidate.id not in warm else 0.0
            warm.setdefault(candidate.id, []).append(timed(arm, story.measurement, warmed, for_s))
        return arms

    def _run(self, arms: Sequence[Child], before: Race, looks: Sequence[int], stop: Stop, for_s: float) -> Race:
        """One more set of processes through its rounds; the look sees the samples of earlier sets too."""
        end = time.monotonic() + for_s

        def so_far(rounds: Sequence[tuple[float, ...]], timeouts: int = 0) -> Race:
            samples = ProcessSamples(rounds=tuple(rounds), settle_timeouts=timeouts)
            return msgspec.structs.replace(before, processes=(*before.processes, samples))

        watch = LoadWatch([arm.pid for arm in arms])
        samples = run_race(
            arms,
            looks=looks,
            stop=lambda rounds: stop(so_far(rounds)),
            seed=len(before.processes),
            on_round=lambda done: self.observer.racing(before.purpose, before.arms, done, max(looks)),
            time_is_up=lambda: time.monotonic() > end,
        )
        race = so_far(samples.rounds, samples.settle_timeouts)
        return msgspec.structs.replace(race, load=watch.odd() or before.load)


@contextlib.contextmanager
def _eager_must_live() -> Iterator[None]:
    """Without eager's process there is no run."""
    try:
        yield
    except Dead as dead:
        raise EnvironmentProblem(f"eager's own process failed: {dead.reason}.") from dead


def _unready(reason: str) -> ToolchainReady:
    return ToolchainReady(id=0, wall_s=0.0, problem=reason)


def _arm_ids(candidates: Sequence[Candidate], with_aa: bool) -> tuple[str, ...]:
    return (EAGER.id, *([EAGER.id] if with_aa else []), *(c.id for c in candidates))


def _summary(fields: dict[str, Any]) -> str:
    check = fields.get("check")
    return check.why if check is not None else ""


def eager_must_work(trial: Trial) -> None:
    """Without a baseline there is nothing to compare with."""
    if trial.state is not State.OK:
        raise EnvironmentProblem(f"eager itself failed ({trial.state}): {trial.reason}.")
