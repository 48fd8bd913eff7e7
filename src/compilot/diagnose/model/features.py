"""Features: a few robust figures by which models are compared with each other. Runs in the eager worker.

In: a workload. Out: `Features`, or None. A few eager calls are watched operator by operator (_torch/opwatch.py), a few
are not; each operator counts at its quickest, without the cost of watching it, and what is left of the quickest plain
call is overhead. A busy machine moves that little, and models are not told apart by little. Takes six calls, or a third
of a second, where two calls do not take longer. Whatever goes wrong means "no features": they only help to order a
search. Not covered: GPUs, where operators run behind the caller's back.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from compilot._tree import call_leaves, is_tensor
from compilot.records import Features

if TYPE_CHECKING:
    from compilot._torch.opwatch import Dispatch, Op
    from compilot.workload import Workload

REPEATS = 3  # noise only adds, so the quickest counts
LONG_ENOUGH_S = 0.3  # no more repeats after this


def features(workload: Workload) -> Features | None:
    """The figures of one eager call; None: they cannot be taken."""
    tensors = [leaf.value for leaf in call_leaves(workload.call) if is_tensor(leaf.value)]
    if any(tensor.is_cuda for tensor in tensors):
        return None
    try:
        from compilot._torch.opwatch import dispatch_cost

        seen = _looked(workload)
        return Features(
            **shares_of(seen, dispatch_cost()),
            call_s=seen.unit_s / seen.calls,
            operators=len(seen.ops) // seen.calls,
            parameter_bytes=sum(p.numel() * p.element_size() for p in workload.model.parameters()),
            input_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            batch=workload.samples_per_call(),
        )
    except Exception:  # the user's model may do anything when it is watched; a run does not need this
        return None


class Looked(NamedTuple):
    """A few units of work, each part at its quickest."""

    ops: list[Op]
    unit_s: float  # of a plain one, nobody watching
    calls: int  # in a unit


def shares_of(seen: Looked, dispatch: Dispatch) -> dict[str, float]:
    """What the time of a call goes into. Pure."""
    from compilot._torch.opwatch import Class

    spent = dict.fromkeys(Class, 0.0)
    for op in seen.ops:
        spent[op.kind] += max(0.0, op.wall_s - dispatch.watched_s)
    busy_s = sum(spent.values())
    whole_s = max(seen.unit_s, busy_s)
    return {
        "conv_share": spent[Class.CONVOLUTION] / whole_s,
        "matmul_share": spent[Class.PRODUCT] / whole_s,
        "memory_share": spent[Class.OTHER] / whole_s,
        "overhead_share": (whole_s - busy_s) / whole_s,
    }


def _looked(workload: Workload) -> Looked:
    """Plain and watched units in turns, so that both meet the same moments."""
    from compilot._torch.opwatch import each_quickest, watch

    ops: list[Op] = []
    plain_s = math.inf
    begin = time.perf_counter()
    with workload.unit(workload.model).restored() as unit:
        for _ in range(REPEATS):
            ops = each_quickest(ops, watch(unit.call)[0])
            start = time.perf_counter()
            unit.call()
            now = time.perf_counter()
            plain_s = min(plain_s, now - start)
            if now - begin > LONG_ENOUGH_S:
                break
        return Looked(ops, plain_s, unit.calls)
