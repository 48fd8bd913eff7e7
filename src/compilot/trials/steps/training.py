"""What a worker does for a training in place of a call: look, build, judge, warm up, train for many steps.

The measured arm is the shipped arm: the step timed and judged here is the one that `compilot.train_step` gives the
user. Eager's own is the plain loop (workload/eager_step.py). A candidate whose batches eager answers, or that compiles
again while it is timed, is refused. Not covered: timing itself (trial.py has the handlers, the same for all kinds).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from compilot._torch import compiling
from compilot._tree import Call
from compilot.diagnose.model.training import inspect_training
from compilot.engines.of_candidate import is_eager_only
from compilot.engines.protocol import Infeasible
from compilot.engines.traits import COMPILE_CACHE
from compilot.errors import InputError
from compilot.identity.machine import machine_fingerprint
from compilot.measure import build_cost, step_curve, step_masks, step_reference
from compilot.measure.step_check import check_steps
from compilot.measure.step_seen import StepSeen, parameters_of, see_step, seen_after
from compilot.records import Candidate, Check, CompiledWay, Fingerprint, Guard, Precision, Settings, Shapes, State
from compilot.runtime.guards import make_guard
from compilot.training import TrainStep, make_step
from compilot.trials.protocol import (
    Build,
    Built,
    CheckCurve,
    Done,
    Failed,
    Inspect,
    Inspected,
    MakeCurves,
    UseBatch,
    Verified,
    Verify,
    Warm,
    Warmed,
)
from compilot.trials.steps import trial
from compilot.trials.steps.state import Handlers, WorkerState
from compilot.workload.loop import Loop, Step
from compilot.workload.state import seeded
from compilot.workload.steps import Steps
from compilot.workload.training import Training

REHEARSED = 3  # more whole steps before timing, the second at another learning rate: recompiles happen here


class StepAnswers:
    """Who made the steps: the candidate, or eager in its place; and whether it compiled meanwhile."""

    def __init__(self, step: Step) -> None:
        self._step = step if isinstance(step, TrainStep) else None  # eager itself
        self._seen, self._compiles = self._counts(), self.compiles()

    def new(self) -> list[str]:
        """Reasons since the last look."""
        before, self._seen = self._seen, self._counts()
        found = [reason for reason, count in self._seen.items() if count > before.get(reason, 0)]
        compiles, self._compiles = self._compiles, self.compiles()
        return [*found, *(["it compiled again"] if self._compiles > compiles else [])]

    def settle(self) -> None:
        """What was built until now is no recompile."""
        self._seen, self._compiles = self._counts(), self.compiles()

    def compiles(self) -> int:
        """Programs built so far."""
        return 0 if self._step is None else self._step.stats().compiles

    def _counts(self) -> dict[str, int]:
        if self._step is None:
            return {}
        stats = self._step.stats()
        return {**stats.fallbacks, **{f"optimizer: {why}": n for why, n in stats.optimizer_fallbacks.items()}}


def inspect(worker: WorkerState, request: Inspect) -> Inspected:
    """Train eager and its float64 self for a few steps, look at the model and at the parts of a step."""
    load, folder = _training(worker), Path(request.references)
    reference = step_reference.make_reference(load, folder)
    if reference.seeded:
        loop = Loop(load)
        begin = loop.save()
        loop.window(step_reference.window(load, 0))  # so that the optimizer has its state
        step_masks.write(step_masks.losses_under_seeds(loop, load, folder), folder)
        loop.restore(begin)
    diagnosis = inspect_training(load, reference)
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=worker.model_fingerprint)
    return Inspected(diagnosis=diagnosis, reference=reference, fingerprint=fingerprint)


# ------------------------------------------------------------------------------------------------------------- building


def build(worker: WorkerState, request: Build) -> Built | Failed:
    """Make the step, take the first ones with it and count what that costs."""
    load, candidate = _training(worker), worker.candidate
    if not is_eager_only(candidate):
        compiling.import_dynamo()  # before the clock
    cold_cache = not any((worker.workspace / COMPILE_CACHE).glob("*"))
    runs, cpu = worker.compiler.count, build_cost.cpu_seconds()
    guard = guard_of(load)
    try:
        loop, cold_s = _first_steps(worker, load, candidate, guard)
    except Infeasible as cause:
        return Failed(state=State.INFEASIBLE, reason=str(cause))
    trial.wait_for_compile_workers()
    worker.fn, worker.unit = loop, Steps(loop, load)
    worker.serving = serving = StepAnswers(loop.step)
    worker.call_from(1)
    fallbacks = tuple(_fallbacks(loop.step))
    serving.settle()
    return Built(
        cold_s=cold_s,
        cold_cache=cold_cache,
        cpu_s=build_cost.cpu_seconds() - cpu,
        compiler_runs=worker.compiler.count - runs,
        guard=guard,
        artifacts=() if request.reuse or candidate.is_eager else trial.kept_cache(worker),
        fallbacks=fallbacks,
    )


def guard_of(load: Training) -> Guard:
    """Which batches the step is built for."""
    return make_guard(load.model, Call((load.batches[0],), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)


def made_step(load: Training, candidate: Candidate, guard: Guard, artifacts: Path | None) -> Any:
    """Who makes a candidate's step for a loop; None: eager's own plain one."""
    if candidate.is_eager:
        return None

    def make(model: Any, loss: Any, optimizer: Any) -> TrainStep:
        return make_step(
            model,
            loss,
            optimizer,
            candidate.step,
            settings=candidate.settings,
            regions=candidate.regions,
            accumulate=load.rules.accumulate,
            clip_norm=load.rules.clip_norm,
            autocast=load.rules.autocast,
            guard=guard,
            artifacts=artifacts,
            strict=True,
            label=candidate.label,
        )

    return make


def _first_steps(worker: WorkerState, load: Training, candidate: Candidate, guard: Guard) -> tuple[Loop, float]:
    """The first step, as eager's reference made it, and some more; every second in which something compiled counts."""
    begin = time.perf_counter()
    loop = Loop(load, made_step(load, candidate, guard, worker.workspace))
    made_s = time.perf_counter() - begin
    before, answers = parameters_of(loop), StepAnswers(loop.step)
    begin = time.perf_counter()
    with seeded(step_reference.seed_of(load, 0)):
        losses = loop.window(step_reference.window(load, 0))
    cold_s = made_s + time.perf_counter() - begin
    worker.first_step = seen_after(loop, before, tuple(map(float, losses)))
    return loop, cold_s + _rehearsal_s(loop, load, answers)


def _rehearsal_s(loop: Loop, load: Training, answers: StepAnswers) -> float:
    """Go through what recompiles: a state that is there, another learning rate; the seconds of steps that compiled."""
    after, spent_s = loop.save(), 0.0
    for number in range(REHEARSED):
        if number == 1:
            loop.change_rate(0.5)
        seen, begin = answers.compiles(), time.perf_counter()
        loop.window(step_reference.window(load, number + 1))
        if answers.compiles() > seen:
            spent_s += time.perf_counter() - begin
    loop.restore(after)
    return spent_s


def _fallbacks(step: Step) -> list[str]:
    """Why eager made steps in the candidate's place."""
    if not isinstance(step, TrainStep):
        return []
    stats = step.stats()
    return [*stats.fallbacks, *(f"optimizer: {why}" for why in stats.optimizer_fallbacks)]


# ------------------------------------------------------------------------------------------------------------- judging


def verify(worker: WorkerState, request: Verify) -> Verified | Failed:
    """Hold the candidate's steps against float64 and eager; those with random numbers of their own by a twin, too."""
    load, folder, reference = _training(worker), Path(request.references), request.reference
    loop, first = _loop(worker), worker.first_step
    own_numbers = reference.seeded and draws_its_own(worker.candidate)
    if own_numbers:
        before = loop.save()
        judged, first = _twin(worker, load, folder)
    else:
        judged = loop
    check = check_steps(judged, load, folder, reference, first=first, tolerance=request.tolerance)
    if own_numbers:
        loop.restore(before)
        check = _with_masks(check, loop, load, folder)
        loop.restore(before)
    answers = worker.serving
    if check.passed and (missed := _fallbacks(loop.step)):
        return Failed(state=State.INFEASIBLE, reason=f"eager had to make steps in its place: {'; '.join(missed)}")
    if isinstance(answers, StepAnswers):
        answers.settle()
    return Verified(check=trial.writable(check))


def draws_its_own(candidate: Candidate) -> bool:
    """Whether its code draws other random numbers than eager."""
    asked = candidate.settings.options.get("fallback_random")
    return candidate.step.compiled is not CompiledWay.NOTHING and not asked


def drawing_as_eager(candidate: Candidate) -> Candidate:
    """The same, and its code draws eager's random numbers: of the whole, and of each block that is compiled apart."""

    def drawing(settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, options={**settings.options, "fallback_random": True})

    regions = tuple(msgspec.structs.replace(one, settings=drawing(one.settings)) for one in candidate.regions)
    return msgspec.structs.replace(candidate, settings=drawing(candidate.settings), regions=regions)


def _twin(worker: WorkerState, load: Training, folder: Path) -> tuple[Loop, StepSeen]:
    """The same candidate with eager's random numbers, from the very first step on."""
    twin = Loop(load, made_step(load, drawing_as_eager(worker.candidate), guard_of(load), None))
    twin.restore(step_reference.load_begin(folder))
    return twin, see_step(twin, step_reference.window(load, 0), step_reference.seed_of(load, 0))


def _with_masks(check: Check, loop: Loop, load: Training, folder: Path) -> Check:
    if not check.passed:
        return check
    problem = step_masks.masks_problem(step_masks.losses_under_seeds(loop, load, folder), step_masks.read(folder))
    told = f"; random numbers of its own under {step_masks.SEEDS} seeds"
    return msgspec.structs.replace(check, passed=not problem, why=problem or check.why + told)


def make_curves(worker: WorkerState, request: MakeCurves) -> Done:
    """Eager's losses over many steps."""
    load, reference = _training(worker), request.reference
    step_curve.make_curves(
        load,
        Path(request.references),
        random=reference.seeded,
        double=reference.kind == "float64",
        limit_s=request.limit_s,
        lower=request.lower or _casts(load),
    )
    return Done()


def check_curve(worker: WorkerState, request: CheckCurve) -> Verified | Failed:
    """The candidate's own, held against them."""
    load, folder = _training(worker), Path(request.references)
    lower = request.check.tolerance is not None or _casts(load)
    random = request.reference.seeded
    found, problem = step_curve.check_curve(_loop(worker), load, folder, random=random, lower=lower)
    if isinstance(worker.serving, StepAnswers):
        worker.serving.settle()
    over = f"{len(found.losses)} steps" + (f" under {found.seeds} seeds" if found.seeds > 1 else "")
    why = problem or f"{request.check.why}; the loss over {over} within eager's band"
    return Verified(check=msgspec.structs.replace(request.check, passed=not problem, why=why, curve=found))


def _casts(load: Training) -> bool:
    """Whether the user's own loop computes in a lower precision."""
    return load.rules.autocast is not Precision.AS_IS


# ------------------------------------------------------------------------------------------------------------- timing


def warm(worker: WorkerState, request: Warm) -> Warmed | Failed:
    """As for any work; what the judge left compiled is no recompile."""
    if request.callers > 1:
        raise InputError("a training step has one caller; leave out the number of callers.")
    worker.unit.begin_again()
    if isinstance(worker.serving, StepAnswers):
        worker.serving.settle()
    warmed = trial.warm(worker, request)
    if isinstance(worker.serving, StepAnswers):
        worker.serving.settle()
    return warmed


def use_batch(worker: WorkerState, request: UseBatch) -> Done | Failed:
    """The batches of a training are its own."""
    if request.batch is None:
        return Done()
    return Failed(state=State.INFEASIBLE, reason="a training is measured with its own batches only")


def _training(worker: WorkerState) -> Training:
    assert isinstance(worker.workload, Training)  # these handlers are picked by its kind
    return worker.workload


def _loop(worker: WorkerState) -> Loop:
    assert isinstance(worker.fn, Loop)  # since the build
    return worker.fn


HANDLERS: Handlers = {
    Inspect: inspect,
    Build: build,
    Verify: verify,
    MakeCurves: make_curves,
    CheckCurve: check_curve,
    Warm: warm,
    UseBatch: use_batch,
}
