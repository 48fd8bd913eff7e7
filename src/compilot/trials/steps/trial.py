"""What a worker does for a trial: open, look, build, check, warm up, time.

The measured arm is the shipped arm: the callable timed and checked here is the one `compilot.compile` gives the user,
guards and marshalling included. Eager itself is timed as the user's bare model.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import psutil
import torch
from torch import nn

from compilot import diagnose, indices
from compilot._collector import no_collector
from compilot._torch import compiling, toolchain, trace
from compilot.artifacts.cachelist import write_list
from compilot.boundary import build as boundary
from compilot.diagnose.model import vanishing_checks
from compilot.engines import registry, vector_probes
from compilot.engines.baked import Named, digest_in_files, weight_tensors
from compilot.engines.of_candidate import compiled_settings, is_eager_only, traits_of
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.shared_forms import Cost, SharedForms
from compilot.engines.traits import COMPILE_CACHE
from compilot.errors import WorkerError
from compilot.identity.input_settings import as_calls_read
from compilot.identity.keys import KEY_FILE, key_components, save_components
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.measure import build_cost, correctness, sampling
from compilot.modules.regions import placed
from compilot.records import ArtifactFile, Candidate, Check, Fingerprint, Guard, IndexFacts, Shapes, State
from compilot.runtime.dispatch import Dispatcher
from compilot.runtime.fast import attach
from compilot.runtime.guards import in_range, make_guard
from compilot.runtime.process import apply_settings
from compilot.trials.protocol import (
    PROTOCOL,
    BatchTimed,
    Build,
    Built,
    CallsTimed,
    Done,
    Failed,
    Inspect,
    Inspected,
    Open,
    Opened,
    PrepareToolchain,
    TimeBatch,
    TimeCalls,
    ToolchainReady,
    UseBatch,
    Verified,
    Verify,
    Warm,
    Warmed,
)
from compilot.trials.serving import Serving
from compilot.trials.steps.importing import import_compiler, installed_since
from compilot.trials.steps.sizes import fixed
from compilot.trials.steps.state import Handlers, WorkerState
from compilot.workload.shipping import unship
from compilot.workload.unit import ModelShare
from compilot.workload.variations import at_batch, at_sizes, cases

WORKERS_END_LIMIT_S = 20.0
SHARE_TURNS = 5  # over all items: a share needs fewer than a speed-up


class SameProgram(BaseException):
    """Stops a compile from within: another candidate has this very code. Not an Exception: torch wraps those."""

    def __init__(self, candidate_id: str) -> None:
        super().__init__(candidate_id)
        self.candidate_id = candidate_id


def open_workload(worker: WorkerState, request: Open) -> Opened:
    """Load the workload and apply the candidate's process settings."""
    if request.protocol != PROTOCOL:
        raise WorkerError(f"parent speaks protocol {request.protocol}, this worker {PROTOCOL}.")
    worker.candidate = request.candidate
    worker.workspace = Path(request.workspace)
    apply_settings(request.candidate.process)
    if traits_of(request.candidate).through_dynamo:
        worker.import_s = import_compiler()
    before = set(sys.modules)
    load = worker.workload = unship(request.shipment)
    worker.model_fingerprint = as_calls_read(model_fingerprint(load.model), load.model, load.examples)
    calls, imports = load.unit(load.model).calls, installed_since(before)
    return Opened(ref=load.ref, notes=tuple(load.notes), calls_per_unit=calls, imports=imports)


def inspect(worker: WorkerState, request: Inspect) -> Inspected:
    """Look at the model, run eager, write the references."""
    load = worker.workload
    kept = [case for case in cases(load) if case.name not in request.without]
    reference = correctness.make_reference(load, kept, Path(request.references))
    diagnosis = diagnose.inspect(load, reference)
    if diagnosis.unjudgeable is None:
        diagnosis = msgspec.structs.replace(diagnosis, indices=indices.find(load))
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=worker.model_fingerprint)
    return Inspected(diagnosis=diagnosis, reference=reference, fingerprint=fingerprint)


def prepare_toolchain(worker: WorkerState, request: PrepareToolchain) -> ToolchainReady:
    """Build what compiles share: the probes of vector extensions, and by something trivial the precompiled header."""
    compiling.import_dynamo()  # before the clock
    begin = time.perf_counter()
    vector_probes.prepare()
    problem = toolchain.try_compiler()
    return ToolchainReady(wall_s=time.perf_counter() - begin, problem=problem)


# ---------------------------------------------------------------------------------------------------------- building


def build(worker: WorkerState, request: Build) -> Built | Failed:
    """Make the callable and answer the first call, counting what it costs."""
    if traits_of(worker.candidate).through_dynamo or not (is_eager_only(worker.candidate) or request.reuse):
        # before the clock: exporters need it as compilers do; loading files does not
        worker.import_s = worker.import_s or import_compiler()
    cold_cache = not any((worker.workspace / COMPILE_CACHE).glob("*"))
    runs, cpu, begin = worker.compiler.count, build_cost.cpu_seconds(), time.perf_counter()
    codes: list[str] = []
    guard = _guard(worker, request.indices)
    same_as: str | None = None
    files: tuple[ArtifactFile, ...] = ()
    weights: Named = weight_tensors(worker.workload.model)  # before anything is built from them
    forms = SharedForms(Path(request.shared)) if request.shared and not request.reuse else None
    try:
        with trace.generated_code(_watch(worker.candidate, codes, request.known_code)):
            files = _make(worker, guard, request.reuse, forms)
    except SameProgram as same:
        same_as = same.candidate_id
    except Infeasible as cause:
        return Failed(state=State.INFEASIBLE, reason=str(cause))
    cold_s, reused = time.perf_counter() - begin, forms.reused if forms is not None else Cost()
    made = forms.made if forms is not None else Cost()
    fresh = same_as is None and not request.reuse
    if fresh:
        _note_key(worker, guard)
    wait_for_compile_workers()
    return Built(
        cold_s=cold_s + reused.wall_s,
        shared_s=reused.wall_s,
        for_others_s=made.wall_s,
        import_s=worker.import_s,
        cold_cache=cold_cache,
        cpu_s=build_cost.cpu_seconds() - cpu + reused.cpu_s,
        compiler_runs=worker.compiler.count - runs,
        guard=guard,
        artifacts=(*files, *kept_cache(worker)) if fresh else (),
        code_sha256=_program_digest(worker.candidate, codes) if codes else None,
        same_as=same_as,
        frozen_weights=same_as is None and bool(getattr(worker.fn, "frozen_weights", False)),
        weights_sha256=_weights_in_files(worker, weights) if fresh else None,
        fallbacks=() if same_as else tuple(worker.serving.new()),
    )


def _guard(worker: WorkerState, facts: IndexFacts) -> Guard:
    settings, load = worker.candidate.settings, worker.workload
    known = Shapes.DYNAMIC if worker.candidate.sizes else settings.shapes  # the facts are about the example's sizes
    found = {} if is_eager_only(worker.candidate) else in_range(facts, known)  # eager looks for itself
    return make_guard(
        load.model, load.call, dynamic=load.dynamic, shapes=settings.shapes, grad=load.grad, indices=found
    )


def _make(worker: WorkerState, guard: Guard, reuse: bool, forms: SharedForms | None = None) -> tuple[ArtifactFile, ...]:
    """Build the engine's files unless they are there, attach the callable and answer the first call."""
    load, candidate = worker.workload, worker.candidate
    if candidate.is_eager:
        worker.use(load.model, guard)
        return ()
    files: tuple[ArtifactFile, ...] = ()
    if not reuse:
        files = boundary.build(BuildRequest(load.model, load.call, guard, candidate, worker.workspace, forms))
    fast = attach(load.model, candidate, guard, worker.workspace)
    with torch.set_grad_enabled(load.grad):
        fast.prepare(load.call)
    worker.use(fast, guard)
    return files


def _watch(candidate: Candidate, codes: list[str], known: Mapping[str, str]) -> Callable[[str], None]:
    """Collect generated code; stop the compile when its first graph is another candidate's only graph."""

    def on_code(code: str) -> None:
        codes.append(trace.normalised(code))
        twin = known.get(_program_digest(candidate, codes)) if len(codes) == 1 else None
        if twin is not None:
            raise SameProgram(twin)

    return on_code


def _program_digest(candidate: Candidate, codes: list[str]) -> str:
    """Digest of everything that makes the program: its code, and settings that act below the code."""
    engine = registry.build_half(candidate.settings.engine)
    below = getattr(engine, "below_the_code", repr)(candidate)
    return hashlib.sha256("\0".join([str(len(codes)), below, *codes]).encode()).hexdigest()


def kept_cache(worker: WorkerState) -> tuple[ArtifactFile, ...]:
    """The compile cache as one artifact, its files listed beside it; of engines that open it at each start."""
    folder = traits_of(worker.candidate).cache_folder
    found = write_list(worker.workspace, f"{folder}/") if folder else None
    return () if found is None else (found,)


def _weights_in_files(worker: WorkerState, weights: Named) -> str | None:
    core = getattr(worker.fn, "_compilot_core", None)
    return digest_in_files(core.loaded, weights) if isinstance(core, Dispatcher) else None


def _note_key(worker: WorkerState, guard: Guard) -> None:
    """What this build depends on, for those who ask later why a start was cold."""
    settings, traits = compiled_settings(worker.candidate), traits_of(worker.candidate)
    if settings is None:
        return
    folder = worker.workspace / traits.cache_folder
    found = key_components(settings=settings, guard=guard, model=worker.model_fingerprint, cache_dir=folder)
    save_components(found, worker.workspace / KEY_FILE)


def wait_for_compile_workers() -> None:
    """Timing starts only when no compiler or compile worker of this process is left."""
    toolchain.shutdown_compile_workers()
    children = psutil.Process().children(recursive=True)
    psutil.wait_procs(children, timeout=WORKERS_END_LIMIT_S)


# ---------------------------------------------------------------------------------------------------------- checking


def verify(worker: WorkerState, request: Verify) -> Verified | Failed:
    """Check the callable against the references; eager's answers in its place do not count."""
    load, wanted = worker.workload, (Path(request.references), request.reference, request.tolerance)
    load = fixed(load) if worker.candidate.sizes else load
    serving = worker.serving
    assert isinstance(serving, Serving)  # a training has a judge of its own
    try:
        check = correctness.check(worker.fn, load, cases(load), *wanted, missed=serving.missed, takes=serving.takes)
    except correctness.NotServed as missed:
        return Failed(state=State.INFEASIBLE, reason=str(missed))
    lost = dict.fromkeys(text for part in _engines(worker) for text in vanishing_checks.caveats(*part))
    check = msgspec.structs.replace(check, caveats=(*check.caveats, *lost))
    return Verified(check=writable(check))


def _engines(worker: WorkerState) -> list[tuple[nn.Module, str]]:
    """What runs with which engine: the model, or each submodule of a region."""
    model, candidate = worker.workload.model, worker.candidate
    places, regions = placed(model, candidate.regions), candidate.regions
    return [(one.module, regions[one.region].settings.engine) for one in places] or [(model, candidate.settings.engine)]


def writable(check: Check) -> Check:
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


# ------------------------------------------------------------------------------------------------------------ timing


def use_batch(worker: WorkerState, request: UseBatch) -> Done | Failed:
    """Work on calls with another number of samples; a candidate that cannot serve them says so."""
    load = worker.workload
    if request.sizes:
        load = at_sizes(load, request.sizes)
    elif request.batch is not None:
        load = at_batch(load, request.batch)
    worker.work_on(load)
    return _eagers_time(worker) or Done()


def warm(worker: WorkerState, request: Warm) -> Warmed | Failed:
    """Call until steady, then calibrate the batch; with all callers, whose threads need a warm-up of their own."""
    worker.call_from(request.callers)
    callers = worker.callers
    call = worker.unit.call if callers is None else callers.once
    steadied = sampling.warm_up(call, worker.serving.compiles, request.for_s, worker.unit.between)
    worker.batch = steadied.calls_per_batch if callers is None else callers.calibrated(steadied.calls_per_batch)
    share = _model_share(worker)
    return _eagers_time(worker) or Warmed(
        warm_up=steadied.warm_up,
        calls_per_batch=worker.batch,
        call_s=steadied.call_s / worker.unit.calls,
        rss_bytes=psutil.Process().memory_info().rss,
        peak_rss_bytes=build_cost.peak_rss_bytes(),
        samples_per_call=worker.workload.samples_per_call(),
        request_s=share.request_s if share is not None else None,
        model_s=share.model_s if share is not None else None,
    )


def _model_share(worker: WorkerState) -> ModelShare | None:
    """Of several turns the one in the middle: what a request takes, and what of it the model; None: no requests."""
    shares = [share for _ in range(SHARE_TURNS) if (share := worker.unit.model_share()) is not None]
    return sorted(shares)[len(shares) // 2] if shares else None


def time_batch(worker: WorkerState, request: TimeBatch) -> BatchTimed | Failed:
    """Time one calibrated batch."""
    callers = worker.callers
    worker.unit.begin_again()
    with no_collector():
        if callers is None:
            per_unit = sampling.time_batch(worker.unit.call, worker.batch)
        else:
            per_unit = callers.time_batch(worker.batch)
    return _eagers_time(worker) or BatchTimed(per_call_s=per_unit / worker.unit.calls)


def time_calls(worker: WorkerState, request: TimeCalls) -> CallsTimed | Failed:
    """Time single calls, for the tails."""
    callers, unit, asked = worker.callers, worker.unit, (request.calls, request.for_s)
    unit.begin_again()
    samples = sampling.time_calls(unit.call, *asked, unit.between) if callers is None else callers.time_calls(*asked)
    per_call = tuple(s / worker.unit.calls for s in samples)
    peak = build_cost.peak_rss_bytes()
    return _eagers_time(worker) or CallsTimed(call_s=per_call, peak_rss_bytes=peak)


def _eagers_time(worker: WorkerState) -> Failed | None:
    """What was timed was eager, at least in part; None: it was the candidate."""
    if not (reasons := worker.serving.new()):
        return None
    text = f"eager had to answer calls in its place while it was timed: {'; '.join(reasons)}"
    return Failed(state=State.INFEASIBLE, reason=text)


HANDLERS: Handlers = {
    Open: open_workload,
    Inspect: inspect,
    PrepareToolchain: prepare_toolchain,
    Build: build,
    Verify: verify,
    UseBatch: use_batch,
    Warm: warm,
    TimeBatch: time_batch,
    TimeCalls: time_calls,
}
