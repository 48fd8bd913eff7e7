"""What a worker does for each request. In: one request. Out: one reply; the state in between is the worker's own.

The measured arm is the shipped arm: the callable timed and checked here is the one `compilot.compile` gives the user,
guards and marshalling included. Eager itself is timed as the user's bare model.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import torch

from compilot import diagnose, indices
from compilot._collector import no_collector
from compilot._torch import compiling, toolchain, trace
from compilot._tree import Call, map_call
from compilot.artifacts.cachelist import write_list
from compilot.diagnose import vanishing
from compilot.engines import registry
from compilot.engines.baked import Named, digest_in_files, weight_tensors
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.traits import COMPILE_CACHE
from compilot.errors import WorkerError
from compilot.identity.keys import KEY_FILE, key_components, save_components
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.measure import correctness, sampling
from compilot.records import (
    ArtifactFile,
    Candidate,
    Check,
    Fingerprint,
    Golden,
    Guard,
    IndexFacts,
    ModelFingerprint,
    State,
)
from compilot.runtime import golden, stand_in
from compilot.runtime.dispatch import Dispatcher
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import in_range, make_guard
from compilot.runtime.process import apply_settings
from compilot.trials import audit
from compilot.trials.protocol import (
    PROTOCOL,
    BatchTimed,
    Build,
    Built,
    CallsTimed,
    Examine,
    Examined,
    ExamineStep,
    ExamineTimes,
    Failed,
    GoldenMade,
    Inspect,
    Inspected,
    MakeGolden,
    Open,
    Opened,
    PrepareToolchain,
    Request,
    SaveWeights,
    TimeBatch,
    TimeCalls,
    ToolchainReady,
    Verified,
    Verify,
    Warm,
    Warmed,
    WeightsSaved,
)
from compilot.trials.serving import Serving
from compilot.workload import Workload
from compilot.workload.shipping import unship
from compilot.workload.variations import cases

if TYPE_CHECKING:
    from compilot.diagnose.examine import Examination

WORKERS_END_LIMIT_S = 20.0


class SameProgram(BaseException):
    """Stops a compile from within: another candidate has this very code. Not an Exception: torch wraps those."""

    def __init__(self, code: str, candidate_id: str) -> None:
        super().__init__(candidate_id)
        self.code = code
        self.candidate_id = candidate_id


class Steps:
    """The worker's state and its steps, one method per request type."""

    def __init__(self) -> None:
        self.compiler = audit.CompilerRuns().install()
        self.workload: Workload
        self.model_fingerprint: ModelFingerprint
        self.candidate: Candidate
        self.workspace: Path
        self.fn: Callable[..., Any]
        self.weights: Named = []  # of the model before anything was built from it
        self.serving: Serving
        self.unit: Any = None
        self.batch = 1
        self.examination: Examination | None = None

    def open(self, request: Open) -> Opened:
        """Load the workload and apply the candidate's process settings."""
        if request.protocol != PROTOCOL:
            raise WorkerError(f"parent speaks protocol {request.protocol}, this worker {PROTOCOL}.")
        self.candidate = request.candidate
        self.workspace = Path(request.workspace)
        apply_settings(request.candidate.process)
        if registry.traits(request.candidate.settings.engine).through_dynamo:
            compiling.import_dynamo()
        self.workload = unship(request.shipment)
        self.model_fingerprint = model_fingerprint(self.workload.model)
        return Opened(
            id=request.id,
            ref=self.workload.ref,
            notes=tuple(self.workload.notes),
            calls_per_unit=len(self.workload.examples),
        )

    def inspect(self, request: Inspect) -> Inspected:
        """Look at the model, run eager, write the references."""
        reference = correctness.make_reference(self.workload, cases(self.workload), Path(request.references))
        diagnosis = diagnose.inspect(self.workload, reference)
        if diagnosis.unjudgeable is None:
            diagnosis = msgspec.structs.replace(diagnosis, indices=indices.find(self.workload))
        fingerprint = Fingerprint(machine=machine_fingerprint(), model=self.model_fingerprint)
        return Inspected(id=request.id, diagnosis=diagnosis, reference=reference, fingerprint=fingerprint)

    def examine(self, request: Examine) -> Examined:
        """One step of the doctor; the report at the end."""
        from compilot.diagnose.examine import Examination  # here: eager's worker does without dynamo

        if self.examination is None:
            self.examination = Examination(self.workload, request.shapes)
        if request.step is not ExamineStep.REPORT:
            getattr(self.examination, request.step)()
            return Examined(id=request.id)
        fingerprint = Fingerprint(machine=machine_fingerprint(), model=self.model_fingerprint)
        return Examined(id=request.id, report=self.examination.report(fingerprint))

    def examinetimes(self, request: ExamineTimes) -> Examined:
        """The doctor's half that is about time; needs a process that has compiled nothing yet."""
        from compilot.diagnose import timing

        compiling.import_dynamo()  # before its clock
        report = timing.add_times(request.report, self.workload, self.workload.call, self.workspace, plan=request.plan)
        return Examined(id=request.id, report=report)

    def preparetoolchain(self, request: PrepareToolchain) -> ToolchainReady:
        """Build the shared precompiled header by compiling something trivial."""
        compiling.import_dynamo()  # before the clock
        begin = time.perf_counter()
        problem = toolchain.try_compiler()
        return ToolchainReady(id=request.id, wall_s=time.perf_counter() - begin, problem=problem)

    def build(self, request: Build) -> Built | Failed:
        """Make the callable and answer the first call, counting what it costs."""
        engine = self.candidate.settings.engine
        if registry.traits(engine).through_dynamo or not (engine == "eager" or request.reuse):
            compiling.import_dynamo()  # before the clock: exporters need it as compilers do; loading files does not
        cold_cache = not any((self.workspace / COMPILE_CACHE).glob("*"))
        runs, cpu, begin = self.compiler.count, audit.cpu_seconds(), time.perf_counter()
        codes: list[str] = []
        guard = self._guard(request.indices)
        same_as: str | None = None
        files: tuple[ArtifactFile, ...] = ()
        try:
            with trace.generated_code(self._watch(codes, request.known_code)):
                files = self._make(guard, request.reuse)
        except SameProgram as same:
            same_as = same.candidate_id
        except Infeasible as cause:
            return Failed(id=request.id, state=State.INFEASIBLE, reason=str(cause))
        cold_s = time.perf_counter() - begin
        if not request.reuse and same_as is None:
            self._note_key(guard)
        _wait_for_compile_workers()
        return Built(
            id=request.id,
            cold_s=cold_s,
            cold_cache=cold_cache,
            cpu_s=audit.cpu_seconds() - cpu,
            compiler_runs=self.compiler.count - runs,
            guard=guard,
            artifacts=() if same_as or request.reuse else (*files, *self._cache()),
            code_sha256=self._program_digest(codes) if codes else None,
            same_as=same_as,
            frozen_weights=same_as is None and bool(getattr(self.fn, "frozen_weights", False)),
            weights_sha256=None if same_as or request.reuse else self._weights_in_files(),
            fallbacks=() if same_as else self._fallbacks(),
        )

    def _cache(self) -> tuple[ArtifactFile, ...]:
        """The compile cache as one artifact, its files listed beside it; of engines that open it at each start."""
        folder = registry.traits(self.candidate.settings.engine).cache_folder
        found = write_list(self.workspace, f"{folder}/") if folder else None
        return () if found is None else (found,)

    def _weights_in_files(self) -> str | None:
        core = getattr(self.fn, "_compilot_core", None)
        return digest_in_files(core.loaded, self.weights) if isinstance(core, Dispatcher) else None

    def _note_key(self, guard: Any) -> None:
        """What this build depends on, for those who ask later why a start was cold."""
        settings = self.candidate.settings
        traits = registry.traits(settings.engine)
        if not traits.through_dynamo:
            return
        folder = self.workspace / traits.cache_folder
        found = key_components(settings=settings, guard=guard, model=self.model_fingerprint, cache_dir=folder)
        save_components(found, self.workspace / KEY_FILE)

    def _guard(self, facts: IndexFacts) -> Guard:
        settings, load = self.candidate.settings, self.workload
        found = {} if settings.engine == "eager" else in_range(facts, settings.shapes)  # eager looks for itself
        how: dict[str, Any] = {"dynamic": load.dynamic, "shapes": settings.shapes, "grad": load.grad}
        return make_guard(load.model, load.call, **how, indices=found)

    def _make(self, guard: Any, reuse: bool) -> tuple[ArtifactFile, ...]:
        """Build the engine's files unless they are there, attach the callable and answer the first call."""
        load = self.workload
        if self.candidate.is_eager:
            self._use(load.model, guard)
            return ()
        files: tuple[ArtifactFile, ...] = ()
        self.weights = weight_tensors(load.model)
        if not reuse:
            engine = registry.build_half(self.candidate.settings.engine)
            files = tuple(engine.build(BuildRequest(load.model, load.call, guard, self.candidate, self.workspace)))
        fast = attach(load.model, self.candidate, guard, self.workspace)
        with torch.set_grad_enabled(load.grad):
            fast.prepare(load.call)
        self._use(fast, guard)
        return files

    def _use(self, fn: Callable[..., Any], guard: Guard) -> None:
        self.fn = fn
        self.serving = Serving(fn, self.workload.model, guard)
        self.unit = self.workload.unit(fn)
        self.unit.call()

    def _watch(self, codes: list[str], known: dict[str, str]) -> Callable[[str], None]:
        """Collect generated code; stop the compile when its first graph is another candidate's only graph."""

        def on_code(code: str) -> None:
            codes.append(trace.normalised(code))
            twin = known.get(self._program_digest(codes)) if len(codes) == 1 else None
            if twin is not None:
                raise SameProgram(code, twin)

        return on_code

    def _program_digest(self, codes: list[str]) -> str:
        """Digest of everything that makes the program: its code, and settings that act below the code."""
        engine = registry.build_half(self.candidate.settings.engine)
        below = getattr(engine, "below_the_code", lambda candidate: repr(candidate))(self.candidate)
        text = "\0".join([str(len(codes)), below, *codes])
        return hashlib.sha256(text.encode()).hexdigest()

    def _fallbacks(self) -> tuple[str, ...]:
        return tuple(self.serving.new())

    def verify(self, request: Verify) -> Verified | Failed:
        """Check the callable against the references; eager's answers in its place do not count."""
        load, wanted = self.workload, (Path(request.references), request.reference, request.tolerance)
        try:
            check = correctness.check(
                self.fn, load, cases(load), *wanted, missed=self.serving.missed, takes=self.serving.takes
            )
        except correctness.NotServed as missed:
            return Failed(id=request.id, state=State.INFEASIBLE, reason=str(missed))
        lost = vanishing.caveats(load.model, self.candidate.settings.engine)
        check = msgspec.structs.replace(check, caveats=(*check.caveats, *lost))
        return Verified(id=request.id, check=_writable(check))

    def _eagers_time(self, request: Request) -> Failed | None:
        """What was timed was eager, at least in part; None: it was the candidate."""
        if not (reasons := self.serving.new()):
            return None
        text = f"eager had to answer calls in its place while it was timed: {'; '.join(reasons)}"
        return Failed(id=request.id, state=State.INFEASIBLE, reason=text)

    def makegolden(self, request: MakeGolden) -> GoldenMade:
        """Answer the example call by eager and by the callable, and keep both ends of it."""
        load, folder = self.workload, Path(request.folder)
        with torch.set_grad_enabled(load.grad):
            packed, eager = (_answer(fn, call) for fn, call in self._fresh_calls())
        golden.save(golden.input_tensors(load.call), folder / request.inputs)
        golden.save(golden.output_tensors(eager), folder / request.outputs)
        made = Golden(inputs=request.inputs, outputs=request.outputs, expected=golden.expected(eager, packed))
        parameters = stand_in.describe(load.model.forward)
        return GoldenMade(id=request.id, golden=made, parameters=parameters, weights_sha256=self._weights())

    def saveweights(self, request: SaveWeights) -> WeightsSaved:
        """Write the model's weights."""
        golden.save(self.workload.model.state_dict(), Path(request.path))
        return WeightsSaved(id=request.id, weights_sha256=self._weights())

    def _weights(self) -> str:
        return model_fingerprint(self.workload.model, weights=True).weights_sha256 or ""

    def _fresh_calls(self) -> list[tuple[Callable[..., Any], Call]]:
        return [(fn, _copied(self.workload.call)) for fn in (self.fn, self.workload.model)]

    def warm(self, request: Warm) -> Warmed | Failed:
        """Call until steady, then calibrate the batch."""
        steadied = sampling.warm_up(self.unit.call, self._compiles, request.for_s)
        self.batch = steadied.calls_per_batch
        return self._eagers_time(request) or Warmed(
            id=request.id,
            warm_up=steadied.warm_up,
            calls_per_batch=self.batch,
            call_s=steadied.call_s / self.unit.calls,
            rss_bytes=psutil.Process().memory_info().rss,
            peak_rss_bytes=audit.peak_rss_bytes(),
            samples_per_call=self.workload.samples_per_call(),
        )

    def _compiles(self) -> int:
        return self.fn.stats().compiles if isinstance(self.fn, Fast) else 0

    def timebatch(self, request: TimeBatch) -> BatchTimed | Failed:
        """Time one calibrated batch."""
        with no_collector():
            per_unit = sampling.time_batch(self.unit.call, self.batch)
        return self._eagers_time(request) or BatchTimed(id=request.id, per_call_s=per_unit / self.unit.calls)

    def timecalls(self, request: TimeCalls) -> CallsTimed | Failed:
        """Time single calls, for the tails."""
        samples = sampling.time_calls(self.unit.call, request.calls, request.for_s)
        per_call = tuple(s / self.unit.calls for s in samples)
        peak = audit.peak_rss_bytes()
        return self._eagers_time(request) or CallsTimed(id=request.id, call_s=per_call, peak_rss_bytes=peak)


def _answer(fn: Callable[..., Any], call: Call) -> Any:
    with golden.seeded():
        return fn(*call.args, **call.kwargs)


def _copied(call: Call) -> Call:
    """The call with tensors of its own: a model may write into its inputs."""
    return map_call(call, lambda _, leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf)


def _writable(check: Check) -> Check:
    """JSON has no infinity: the largest number stands for it."""
    worst = tuple(
        msgspec.structs.replace(
            one, **{name: _finite(getattr(one, name)) for name in ("rmse", "eager_rmse", "limit", "max_abs")}
        )
        for one in check.worst
    )
    relative = None if check.relative_error is None else _finite(check.relative_error)
    return msgspec.structs.replace(check, worst=worst, relative_error=relative)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else sys.float_info.max


def _wait_for_compile_workers() -> None:
    """Timing starts only when no compiler or compile worker of this process is left."""
    toolchain.shutdown_compile_workers()
    children = psutil.Process().children(recursive=True)
    psutil.wait_procs(children, timeout=WORKERS_END_LIMIT_S)
