"""What bounds the work: Python and dispatch, memory traffic, or compute.

In: a workload, one call, the machine's peaks. Out: `Bound` (shares, operators, submodules, advice) and the `Work` of
one call for the roofline. An operator is bound by compute when its operations at peak speed take longer than its bytes
at full bandwidth, else by memory; one that costs no more than its own dispatch is overhead, as is all time outside of
operators. Runs the model eagerly, several times. Not covered: GPUs, where operators run behind the caller's back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from compilot._torch.opwatch import Dispatch, Op, dispatch_cost, each_quickest, storage_address, tensors_in, watch
from compilot.diagnose import trusted
from compilot.diagnose.driving import fresh
from compilot.diagnose.edits import Advice, Edit
from compilot.diagnose.model.inspection import TINY_CALL_S
from compilot.diagnose.report_records import Bound, OperatorTime
from compilot.diagnose.timing.machine_peaks import Peaks
from compilot.diagnose.timing.roofline import Work
from compilot.diagnose.timing.submodules import submodule_times

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.workload import Workload

REPEATS = 15  # the quickest counts: noise only adds
LONG_ENOUGH_S = 5.0  # no more repeats after this
SHOWN = 15  # operators and submodules kept in the report

OVERHEAD, MEMORY, COMPUTE = "overhead", "memory", "compute"


class Looked(NamedTuple):
    """One look at eager."""

    bound: Bound
    work: Work
    eager_s: float


def look(workload: Workload, call: Call, peaks: Peaks) -> Looked:
    """Run the model eagerly and say what limits it."""
    model = workload.model

    def run(call: Call) -> Any:
        with torch.set_grad_enabled(workload.grad):
            return model(*call.args, **call.kwargs)

    seen = _quickest(run, call)
    bound = judge(seen.ops, seen.eager_s, dispatch_cost(), peaks)
    times = submodule_times(model, lambda: run(fresh(call)))[:SHOWN]
    bound = msgspec.structs.replace(bound, submodules=times)
    return Looked(bound, work_of(seen.ops, _outside(workload, seen.call), seen.answer), seen.eager_s)


def judge(ops: Sequence[Op], eager_s: float, dispatch: Dispatch, peaks: Peaks) -> Bound:
    """Shares of one call and what they mean; pure."""
    rows = _rows(ops, dispatch, peaks)
    spent = {kind: sum(row.wall_s for row in rows if row.limited_by == kind) for kind in (OVERHEAD, MEMORY, COMPUTE)}
    spent[OVERHEAD] += sum(max(0.0, op.before_s - dispatch.between_s) for op in ops) + len(ops) * dispatch.plain_s
    whole_s = sum(spent.values()) or 1.0
    limited_by = max(spent, key=lambda kind: spent[kind])
    return Bound(
        limited_by=limited_by,
        because=_because(limited_by, spent[limited_by] / whole_s, len(ops), eager_s),
        overhead_share=spent[OVERHEAD] / whole_s,
        memory_share=spent[MEMORY] / whole_s,
        compute_share=spent[COMPUTE] / whole_s,
        advice=advice(limited_by, eager_s),
        operators=tuple(sorted(rows, key=lambda row: -row.wall_s)[:SHOWN]),
    )


def advice(limited_by: str, eager_s: float) -> Advice:
    """What helps, in plain words."""
    if limited_by == OVERHEAD and eager_s < TINY_CALL_S:
        return Edit.BATCH_CALLS()
    return {OVERHEAD: Edit.LESS_OVERHEAD, MEMORY: Edit.FEWER_BYTES, COMPUTE: Edit.BETTER_KERNELS}[limited_by]()


def work_of(ops: Sequence[Op], outside: set[int], answer: Any) -> Work:
    """Operations and bytes of one call; outside: storages that were there before it (weights and inputs)."""
    read: dict[int, int] = defaultdict(int)
    for op in ops:
        for address, size in op.reads:
            if address in outside:
                read[address] = max(read[address], size)
    written = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(answer))
    return Work(
        flops=sum(op.flops for op in ops),
        bytes=float(sum(op.bytes for op in ops)),
        least_bytes=float(sum(read.values()) + written),
    )


def _because(limited_by: str, share: float, count: int, eager_s: float) -> str:
    words = {
        OVERHEAD: f"Python and the dispatch of {count} operators take",
        MEMORY: "operators that wait for memory take",
        COMPUTE: "operators that compute at their limit take",
    }
    return f"{words[limited_by]} {share * 100:.0f} % of a call of {_time(eager_s)}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} microseconds"


def _rows(ops: Sequence[Op], dispatch: Dispatch, peaks: Peaks) -> list[OperatorTime]:
    groups: dict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in ops:
        groups[op.name, _limit(op, dispatch.watched_s, peaks)].append(op)
    return [
        OperatorTime(
            name=name,
            calls=len(group),
            wall_s=sum(max(0.0, op.wall_s - dispatch.watched_s) for op in group),
            flops=sum(op.flops for op in group),
            bytes=float(sum(op.bytes for op in group)),
            limited_by=limit,
        )
        for (name, limit), group in groups.items()
    ]


def _limit(op: Op, dispatch_s: float, peaks: Peaks) -> str:
    if op.wall_s < 2 * dispatch_s or not (op.flops or op.bytes):
        return OVERHEAD
    return COMPUTE if op.flops / peaks.flops_per_s >= op.bytes / peaks.bandwidth_bytes_per_s else MEMORY


class _Quickest(NamedTuple):
    eager_s: float
    ops: list[Op]
    call: Call  # the one whose operators they are
    answer: Any


def _quickest(run: Callable[[Call], Any], example: Call) -> _Quickest:
    """The quickest plain call, and each operator at its quickest; in turns, so that both meet the same moments.

    Each call has objects of its own, copied before the clock starts: a cache must not grow from call to call. The
    shares come from the operators alone: on a busy machine a whole call is always disturbed somewhere, one operator or
    the gap before it hardly in all of the repeats.
    """
    run(fresh(example))
    begin = time.perf_counter()
    plain = trusted.Stopwatch()
    ops: list[Op] = []
    answer: Any = None
    call = example
    while len(plain.samples) < REPEATS and (time.perf_counter() - begin < LONG_ENOUGH_S or not plain.samples):
        call = fresh(example)
        plain.lap(lambda call=call: run(call))  # type: ignore[misc]
        call = fresh(example)
        again, answer = watch(lambda call=call: run(call))  # type: ignore[misc]
        ops = each_quickest(ops, again)
    eager_s = plain.quickest()
    if eager_s is None:
        raise trusted.Untrusted(trusted.LEFT_OUT)
    return _Quickest(eager_s, ops, call, answer)


def _outside(workload: Workload, call: Call) -> set[int]:
    """Storages of weights, buffers and inputs."""
    model = workload.model
    known = [*model.parameters(), *model.buffers(), *tensors_in([list(call.args), dict(call.kwargs)])]
    return {address for address in map(storage_address, known) if address}
