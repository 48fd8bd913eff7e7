"""The runner on this machine: one child process per candidate.

In: candidates. Out: trials, then races over live workers. Covered: build -> check -> warm-up -> screening of each
candidate in its own process; races with an A/A arm; confirmation in fresh processes that reuse the trial's files. Not
covered: which candidate comes next (candidates/), what the samples mean (verdict/). Timing never runs side by side. A
cluster runner implements the same methods.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.measure.racing import race as run_race
from compilot.measure.tolerance import tolerance_of
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Measurement,
    ProcessSamples,
    Race,
    Reference,
    Shipment,
    State,
    Trial,
)
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, affordable_workers, worker_env
from compilot.trials.load import LoadWatch
from compilot.trials.protocol import (
    PROTOCOL,
    Build,
    Built,
    CallsTimed,
    Failed,
    Inspect,
    Inspected,
    Open,
    Opened,
    PrepareToolchain,
    TimeCalls,
    ToolchainReady,
    Verified,
    Verify,
    Warm,
    Warmed,
)
from compilot.trials.replies import raise_user_error

SCREENING_PAIRS = 8  # enough to sort candidates; who wins is decided in the race
FEWEST_SCREENING_PAIRS = 2  # of a model so slow that the trial's time is up
TAIL_CALLS = 660  # an honest p99 needs about this many
SCREENING_TAIL_S = 1.5
TAIL_S = 12.0  # 660 calls of an 18 ms model

Stop = Callable[[Race], bool]


class _Story(NamedTuple):
    """What is known of a candidate while its trial goes on."""

    built: Built
    measurement: Measurement


class Failure(Exception):
    """A step failed and the worker lives; carries whose it was, the trial state and reason, and what is known."""

    def __init__(self, owner: str, state: State, reason: str, **known: Any) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason
        self.known = known


class ArmLost(Exception):
    """A candidate that passed its trial failed in a race: the race must be run again without it."""

    def __init__(self, owner: str, state: State, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason


class LocalRunner:
    """Runs trials and races on this machine."""

    def __init__(
        self, shipment: Shipment, run_dir: Path, *, limits: Limits, observer: Observer, tolerance: float | None = None
    ) -> None:
        self.shipment = shipment
        self.run_dir = run_dir
        self.limits = limits
        self.observer = observer
        self.tolerance = tolerance  # of lower precisions; None: each one's default
        self.reference: Reference | None = None
        self.workers_at_once = 99
        self.opened_in_s = 5.0  # start of a process, imports and the model; learned from the first one
        self._live: dict[str, Child] = {}
        self._spares: list[Child] = []

    # ------------------------------------------------------------------------------------------------ eager first

    def open_eager(self) -> tuple[Opened, Inspected]:
        """Start the eager worker, which stays for the whole run: baseline of every pair, maker of the references."""
        begin = time.monotonic()
        child = self._spawn(EAGER, "eager")
        opened = _answered(child.ask(Open, Opened, limit_s=self.limits.open_s, **self._open_fields(EAGER)))
        self.opened_in_s = time.monotonic() - begin
        self.observer.doing("running eager and its float64 reference")
        where = str(self.run_dir / "reference")
        child.doing = "running eager"
        inspected = _answered(child.ask(Inspect, Inspected, limit_s=self.limits.inspect_s, references=where))
        self.reference = inspected.reference
        return opened, inspected

    def prepare_toolchain(self) -> ToolchainReady:
        """Build the shared C++ header in a worker of its own; its cost is nobody's compile time."""
        child = self._spawn(EAGER, "toolchain", keep=False)
        try:
            reply = child.ask(
                PrepareToolchain, ToolchainReady, limit_s=self.limits.prepare_s, doing="trying the C++ compiler"
            )
            return reply if isinstance(reply, ToolchainReady) else _unready(reply.reason)
        except Dead as dead:
            return _unready(dead.reason)
        finally:
            child.kill()

    # ----------------------------------------------------------------------------------------------------- trials

    def free_slots(self) -> int:
        """Trials are built one at a time: a cold start timed beside another build would be a lie."""
        return 1

    def trial(self, candidate: Candidate, known_code: dict[str, str], cap_s: float) -> Trial:
        """Try one candidate in its own process; whatever happens is the trial's story."""
        begin = time.monotonic()
        log = Path("logs") / f"{candidate.id}.log"
        fields: dict[str, Any] = {}
        try:
            fields = self._try(candidate, known_code, begin + cap_s)
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

    def _try(self, candidate: Candidate, known_code: dict[str, str], end: float) -> dict[str, Any]:
        """Every step gets what is left until `end`, and no step more than its own limit."""

        def limits() -> Limits:
            return self.limits.capped(end - time.monotonic())

        child = self._live.get(candidate.id) or self._open(candidate, limits())
        story = self._build(child, candidate, known_code, limits())
        fields: dict[str, Any] = {
            "guard": story.built.guard,
            "artifacts": story.built.artifacts,
            "code_sha256": story.built.code_sha256,
            "measurement": story.measurement,
            "frozen_weights": story.built.frozen_weights,
        }
        if not candidate.is_eager:  # eager is what the others are judged by
            self._check(child, candidate, fields, limits())
        self._steady(child, candidate, fields, limits())
        if not candidate.is_eager:
            fields["screening"] = self._screen(child, end)
        return fields

    def _build(
        self, child: Child, candidate: Candidate, known: dict[str, str], limits: Limits, *, reuse: bool = False
    ) -> _Story:
        self.observer.doing("building and answering the first call")
        reply = child.ask(Build, Built, limit_s=limits.build_s, doing="building", known_code=known, reuse=reuse)
        if isinstance(reply, Failed):
            raise Failure(candidate.id, reply.state, reply.reason)
        measurement = _first_call(reply)
        if reply.same_as is not None:
            reason = f"generates the same program as candidate {reply.same_as}; not measured twice"
            known_fields = {"same_as": reply.same_as, "code_sha256": reply.code_sha256, "measurement": measurement}
            raise Failure(candidate.id, State.PRUNED, reason, **known_fields)
        if reply.fallbacks:
            text = f"the example call does not take the fast path: {'; '.join(reply.fallbacks)}"
            raise Failure(candidate.id, State.INFEASIBLE, text, measurement=measurement)
        return _Story(reply, measurement)

    def _check(self, child: Child, candidate: Candidate, fields: dict[str, Any], limits: Limits) -> None:
        self.observer.doing("checking its answers")
        judged_by: dict[str, Any] = {
            "references": str(self.run_dir / "reference"),
            "reference": self.reference,
            "tolerance": tolerance_of(candidate.settings.precision, self.tolerance),
        }
        reply = child.ask(Verify, Verified, limit_s=limits.check_s, doing="checking", **judged_by)
        if isinstance(reply, Failed):
            raise Failure(child.owner, reply.state, reply.reason, **fields)
        fields["check"] = reply.check
        if not reply.check.passed:
            raise Failure(child.owner, State.WRONG, reply.check.why, **fields)

    def _steady(self, child: Child, candidate: Candidate, fields: dict[str, Any], limits: Limits) -> None:
        self.observer.doing("warming up and timing single calls")
        warmed = self._warm_up(child, limits)
        tail = child.ask(TimeCalls, CallsTimed, limit_s=120.0, doing="timing", calls=TAIL_CALLS, for_s=SCREENING_TAIL_S)
        fields["measurement"] = _steady_measurement(child.owner, fields["measurement"], warmed, tail)
        if not candidate.is_eager and (why := _too_large(fields["measurement"], self.limits.memory_bytes)):
            raise Failure(candidate.id, State.INFEASIBLE, why, **fields)

    def _warm_up(self, child: Child, limits: Limits) -> Warmed:
        reply = child.ask(Warm, Warmed, limit_s=limits.warm_s + 120.0, doing="warming up", for_s=limits.warm_s)
        if isinstance(reply, Failed):
            raise Failure(child.owner, reply.state, reply.reason)
        warmed: Warmed = reply
        return warmed

    def _screen(self, child: Child, end: float) -> tuple[tuple[float, float], ...]:
        self.observer.doing("pairing with eager")
        samples = run_race(
            [self._live[EAGER.id], child],
            looks=(SCREENING_PAIRS,),
            stop=lambda _: True,
            seed=0,
            time_is_up=lambda: time.monotonic() > end,
            discard=1,
            fewest=FEWEST_SCREENING_PAIRS,
        )
        return tuple((row[0], row[1]) for row in samples.rounds)

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
            arms = [self._live[EAGER.id], *([self._spare()] if with_aa else [])]
            arms += [self._live.get(c.id) or self._reopen(c) for c in candidates]
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
        arms: list[Child] = []
        for candidate in order:
            arms.append(self._spawn(candidate, f"{candidate.id}-confirm", keep=False))
            self._spares.append(arms[-1])  # at once: whatever happens next, close() must know it
        for arm, candidate in zip(arms, order, strict=True):
            arm.send(Open, Opened, doing="opening", **self._open_fields(candidate))
        for arm in arms:
            reply = arm.receive(limit_s=self.limits.open_s)
            if isinstance(reply, Failed):
                raise Failure(arm.owner, reply.state, reply.reason)
        for arm, candidate in zip(arms, order, strict=True):
            story = self._build(arm, candidate, {}, self.limits, reuse=True)
            warmed = self._warm_up(arm, self.limits)
            if arm is arms[1] and with_aa:
                continue
            for_s = tail_s if candidate.id not in warm else 0.0
            tail = arm.ask(TimeCalls, CallsTimed, limit_s=120.0, doing="timing", calls=TAIL_CALLS, for_s=for_s)
            measured = _steady_measurement(candidate.id, story.measurement, warmed, tail)
            warm.setdefault(candidate.id, []).append(measured)
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

    # ---------------------------------------------------------------------------------------------------- workers

    def _spawn(self, candidate: Candidate, name: str, *, keep: bool = True) -> Child:
        workspace = self._workspace(candidate)
        log = self.run_dir / "logs" / f"{name}.log"
        limit = self.limits.machine_bytes if candidate.is_eager else self.limits.memory_bytes  # eager is the judge
        child = Child(candidate.id, log=log, env=worker_env(workspace), memory_limit_bytes=limit)
        if keep:
            self._live[candidate.id] = child
        return child

    def _workspace(self, candidate: Candidate) -> Path:
        workspace = self.run_dir / "work" / candidate.id
        workspace.mkdir(parents=True, exist_ok=True)
        return workspace

    def _open(self, candidate: Candidate, limits: Limits) -> Child:
        self.observer.doing("starting its process")
        child = self._spawn(candidate, candidate.id)
        reply = child.ask(Open, Opened, limit_s=limits.open_s, doing="opening", **self._open_fields(candidate))
        if isinstance(reply, Failed):
            raise Failure(candidate.id, reply.state, reply.reason)
        return child

    def _reopen(self, candidate: Candidate) -> Child:
        """A worker again for a candidate whose first one was let go: built from its own files."""
        child = self._open(candidate, self.limits)
        self._build(child, candidate, {}, self.limits, reuse=True)
        self._warm_up(child, self.limits)
        return child

    def _spare(self) -> Child:
        """A second eager worker: the A/A arm."""
        return self._spares[0] if self._spares else self.extra_eager("eager-again")

    def extra_eager(self, name: str) -> Child:
        """One more eager worker, warmed up; it lives until `close`."""
        child = self.begin_extra(name)
        self.extra_opened(child)
        self.extra_warm(child)
        return child

    def begin_extra(self, name: str) -> Child:
        """Start an eager worker and do not wait: several can import side by side."""
        child = self._spawn(EAGER, name, keep=False)
        self._spares.append(child)
        child.send(Open, Opened, doing="opening", **self._open_fields(EAGER))
        return child

    def extra_opened(self, child: Child) -> None:
        """Wait until a worker of `begin_extra` has its model."""
        _answered(child.receive(limit_s=self.limits.open_s))

    def extra_warm(self, child: Child) -> None:
        """Its first call and its warm-up: nothing else should run meanwhile."""
        self._build(child, EAGER, {}, self.limits)
        self._warm_up(child, self.limits)

    def _open_fields(self, candidate: Candidate) -> dict[str, Any]:
        workspace = str(self._workspace(candidate))
        return {"protocol": PROTOCOL, "shipment": self.shipment, "candidate": candidate, "workspace": workspace}

    def learn_capacity(self, rss_bytes: int) -> int:
        """How many workers may live at once, from the size of the eager one."""
        available = psutil.virtual_memory().available + rss_bytes
        self.workers_at_once = affordable_workers(rss_bytes, available)
        return self.workers_at_once

    def keep_only(self, ids: Sequence[str]) -> None:
        """Let go of every candidate's worker but these; eager always stays."""
        for key in [k for k in self._live if k not in ids and k != EAGER.id]:
            self.drop(key)

    def drop(self, candidate_id: str) -> None:
        """Let go of one candidate's worker."""
        child = self._live.pop(candidate_id, None)
        if child is not None:
            child.quit()

    def close(self) -> None:
        """End every worker."""
        for child in [*self._live.values(), *self._spares]:
            child.quit()
        self._live.clear()
        self._spares.clear()

    def abort(self) -> None:
        """End every worker at once, without good-byes."""
        for child in [*self._live.values(), *self._spares]:
            child.kill()


def _answered(reply: Any) -> Any:
    """The reply of a step that must work (eager's own); its failure is the user's or the environment's."""
    if isinstance(reply, Failed):
        raise_user_error(reply)
    return reply


def _unready(reason: str) -> ToolchainReady:
    return ToolchainReady(id=0, wall_s=0.0, problem=reason)


def _arm_ids(candidates: Sequence[Candidate], with_aa: bool) -> tuple[str, ...]:
    return (EAGER.id, *([EAGER.id] if with_aa else []), *(c.id for c in candidates))


def _first_call(built: Built) -> Measurement:
    return Measurement(
        cold_s=built.cold_s, cold_cache=built.cold_cache, cold_cpu_s=built.cpu_s, compiler_runs=built.compiler_runs
    )


def _steady_measurement(owner: str, first: Measurement, warmed: Warmed, tail: CallsTimed | Failed) -> Measurement:
    if isinstance(tail, Failed):
        raise Failure(owner, tail.state, tail.reason)
    doubts = () if warmed.warm_up.steady else ("unsteady",)
    return msgspec.structs.replace(
        first,
        warm_up=warmed.warm_up,
        calls_per_batch=warmed.calls_per_batch,
        call_s=tail.call_s,
        samples_per_call=warmed.samples_per_call,
        peak_rss_bytes=max(warmed.peak_rss_bytes, tail.peak_rss_bytes),
        steady_rss_bytes=warmed.rss_bytes,
        doubts=doubts,
    )


def _too_large(measured: Measurement, limit_bytes: int | None) -> str:
    """Why a candidate uses too much memory, "" where it does not: looks while it runs may have missed the peak."""
    if limit_bytes is None or measured.peak_rss_bytes <= limit_bytes:
        return ""
    peak, steady, limit = (n / 2**20 for n in (measured.peak_rss_bytes, measured.steady_rss_bytes, limit_bytes))
    return f"peak memory {peak:.0f} MiB ({steady:.0f} MiB steady) is above the limit of {limit:.0f} MiB"


def _summary(fields: dict[str, Any]) -> str:
    check = fields.get("check")
    return check.why if check is not None else ""


def eager_must_work(trial: Trial) -> None:
    """Without a baseline there is nothing to compare with."""
    if trial.state is not State.OK:
        raise EnvironmentProblem(f"eager itself failed ({trial.state}): {trial.reason}.")
