"""What a worker does for the sizes of a trace: read them, prove padding, hold programs of other sizes to eager, replay.

Eager's worker reads the trace, proves what may be padded and makes the references of other sizes. A candidate's worker
asks its own program about padding. An arm's worker attaches a whole plan, as `compilot.compile` does, and answers the
requests of the trace, each timed on its own. Not covered: ordinary trials (trial.py), what the figures mean (verdict/).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from compilot._collector import no_collector
from compilot._torch import compiling
from compilot._tree import Call, call_leaves, is_tensor
from compilot.engines.of_candidate import traits_of
from compilot.engines.protocol import Loaded
from compilot.errors import WorkerError
from compilot.measure import build_cost, correctness
from compilot.measure.padded_answers import Asked, Leak
from compilot.measure.padding import prove_padding
from compilot.measure.padding_engine import AnswerJudge, Pair, check_engine
from compilot.measure.tolerance import tolerance_of
from compilot.records import Padding, Shapes, State
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import in_range, make_guard
from compilot.runtime.padding import PaddedCalls
from compilot.runtime.sources import EntryParts
from compilot.trials.protocol import (
    AskServed,
    AttachPlan,
    CheckPadding,
    Failed,
    MakeReference,
    PaddingChecked,
    PaddingProven,
    PlanAttached,
    ProvePadding,
    ReadTraffic,
    ReferenceMade,
    RequestsReady,
    RequestsTimed,
    Served,
    TimeRequests,
    TrafficRead,
    UseRequests,
)
from compilot.trials.steps.state import Handlers, WorkerState
from compilot.workload import Workload
from compilot.workload.replay import Replay, replayed
from compilot.workload.traffic import traffic_of
from compilot.workload.variations import at_sizes, cases

JUDGED_CALLS = 8  # of a trace, by a whole plan: each of its programs was judged by its own trial
PAD_TURNS = 15  # of a padded call and one that is not: their difference is what padding takes


def read_traffic(worker: WorkerState, request: ReadTraffic) -> TrafficRead:
    """The sizes of a trace as this model's calls have them."""
    load = worker.workload
    known = in_range(request.indices, Shapes.DYNAMIC)
    guard = make_guard(
        load.model, load.call, dynamic=load.dynamic, shapes=Shapes.DYNAMIC, grad=load.grad, indices=known
    )
    traffic = traffic_of(load, request.counts, guard, recorded=request.recorded, requests=request.requests)
    return TrafficRead(traffic=traffic)


def prove(worker: WorkerState, request: ProvePadding) -> PaddingProven:
    """Which of the declared sizes may be padded."""
    return PaddingProven(proof=prove_padding(worker.workload))


def make_reference(worker: WorkerState, request: MakeReference) -> ReferenceMade:
    """What programs for these sizes are held against."""
    load = fixed(at_sizes(worker.workload, request.sizes))
    return ReferenceMade(reference=correctness.make_reference(load, cases(load), Path(request.references)))


def fixed(workload: Workload) -> Workload:
    """The same work without other sizes: what a program for one size is judged by."""
    return workload.replaced(dynamic=())


def check_padding(worker: WorkerState, request: CheckPadding) -> PaddingChecked:
    """Whether the built callable stands padded calls, and what padding takes."""
    leak = check_engine(worker.fn, worker.workload, request.padding, request.tolerance)
    return PaddingChecked(leak=leak, pad_s=0.0 if leak is not None else _pad_s(worker, request.padding))


def _pad_s(worker: WorkerState, padding: Padding) -> float:
    """Padding a call of half the size and cutting its answer back, with an engine that has the answer already.

    The difference of two whole calls would be as long as the noise of the engine.
    """
    sized = worker.workload.sized
    halves = {group: max(group.min, group.size // 2) for group in sized.groups}
    whole = {group: group.size for group in sized.groups}
    with torch.set_grad_enabled(worker.workload.grad):
        short, long = sized.at(halves), sized.at(whole)
        answer = worker.fn(*long.args, **long.kwargs)
        padded = PaddedCalls(Loaded(call=lambda *args, **kwargs: answer), padding)
        _call_s(padded, short)  # the first call makes its buffers
        return max(0.0, statistics.median(_call_s(padded, short) - _call_s(padded, long) for _ in range(PAD_TURNS)))


def _call_s(fn: Callable[..., Any], call: Any) -> float:
    begin = time.perf_counter()
    fn(*call.args, **call.kwargs)
    return time.perf_counter() - begin


# ------------------------------------------------------------------------------------------------------ whole plans


def attach_plan(worker: WorkerState, request: AttachPlan) -> PlanAttached | Failed:
    """The model behind these entries, warm for every size of the trace; the calls so far are not counted."""
    load, folder = worker.workload, Path(request.folder)
    if any(traits_of(entry.candidate).through_dynamo for entry in request.entries):
        compiling.import_dynamo()  # before the clock
    begin = time.perf_counter()
    worker.fn = load.model if not request.entries else attach_parts(load.model, _parts(request, folder))
    worker.unit = load.unit(worker.fn)
    if not isinstance(worker.unit, Replay):
        raise WorkerError("a plan is replayed over the requests of a trace, and none was shipped.")
    worker.unit.once()
    loaded_s = time.perf_counter() - begin
    if request.entries and (why := _other_answer(worker, request)):
        return Failed(state=State.WRONG, reason=why)
    fallbacks = tuple(worker.fn.stats().fallbacks) if isinstance(worker.fn, Fast) else ()
    worker.unit.once()  # what a compiler does at the second sight of a size, it has done by now
    if isinstance(worker.fn, Fast):
        worker.fn._compilot_core.forget_calls()
    worker.compiled = _compiles(worker)
    return PlanAttached(loaded_s=loaded_s, requests=worker.unit.calls, fallbacks=fallbacks)


def _other_answer(worker: WorkerState, request: AttachPlan) -> str:
    """Where the plan does not answer calls of the trace as eager does: a few of them, from the shortest to the longest;
    "": nowhere.
    """
    load = worker.workload
    tolerances = [
        entry.evidence.tolerance or tolerance_of(entry.candidate.settings.precision, None) for entry in request.entries
    ]
    allowed = max((one for one in tolerances if one is not None), default=None)
    judge, own = AnswerJudge(load, allowed), Asked(load.unit(worker.fn))
    calls = sorted(load.examples[1:], key=lambda call: sum(tensor.numel() for tensor in _tensors(call)))
    for call in [*calls[:: max(1, len(calls) // JUDGED_CALLS)], calls[-1]]:
        where = f"at {' '.join(str(tuple(tensor.shape)) for tensor in _tensors(call))}"
        try:
            judge.refuse_other(own.answer(call), call, Pair(0, 0), where)
        except Leak as leak:
            return leak.why
    return ""


def _tensors(call: Call) -> list[torch.Tensor]:
    return [leaf.value for leaf in call_leaves(call) if is_tensor(leaf.value)]


def _parts(request: AttachPlan, folder: Path) -> tuple[EntryParts, ...]:
    return tuple(
        EntryParts(
            candidate=entry.candidate,
            guard=entry.guard,
            artifacts=folder / entry.artifacts_dir if entry.artifacts_dir else None,
            weights_sha256=entry.weights_sha256,
            name=entry.name,
            padding=entry.padding,
            split=entry.split,
        )
        for entry in request.entries
    )


def use_requests(worker: WorkerState, request: UseRequests) -> RequestsReady:
    """The built callable over requests of the trace, all of them answered twice before they are timed."""
    worker.work_on(replayed(worker.workload, request.calls))
    worker.unit.call()  # what a compiler does at the second sight of a size, it has done by now
    return RequestsReady(requests=worker.unit.calls)


def time_requests(worker: WorkerState, request: TimeRequests) -> RequestsTimed:
    """Some requests in their order, after the one before them, which is not timed: caches are as in real traffic."""
    assert isinstance(worker.unit, Replay)
    with no_collector():
        return RequestsTimed(seconds=worker.unit.time_some(request.first, request.count, request.passes))


def served(worker: WorkerState, request: AskServed) -> Served:
    """Who answered since the warm-up."""
    stats = worker.fn.stats() if isinstance(worker.fn, Fast) else None
    return Served(
        calls=stats.calls if stats is not None else 0,
        fast=stats.fast if stats is not None else 0,
        compiles=_compiles(worker) - worker.compiled,
        peak_rss_bytes=build_cost.peak_rss_bytes(),
    )


def _compiles(worker: WorkerState) -> int:
    """Programs that were made in this process so far, whoever asked for them."""
    made = worker.fn.stats().compiles if isinstance(worker.fn, Fast) else 0
    return max(made, compiling.graphs_built() if compiling.dynamo_is_here() else 0)


HANDLERS: Handlers = {
    ReadTraffic: read_traffic,
    ProvePadding: prove,
    MakeReference: make_reference,
    CheckPadding: check_padding,
    AttachPlan: attach_plan,
    UseRequests: use_requests,
    TimeRequests: time_requests,
    AskServed: served,
}
