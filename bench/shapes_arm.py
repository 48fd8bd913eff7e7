"""One arm of bench/shapes.py in a process of its own. In: JSON lines on stdin. Out: one JSON line for each.

    python bench/shapes_arm.py MODEL TRACE ARM REQUESTS [PLAN]

ARM is eager, compile, dynamic, powers or plan. The first line that is written says how long the first answers took:
from the moment the model is there (imports are not counted) to the first and the tenth answer, in the sample's order.
Then every size is answered twice, and {"first": 0, "count": 8, "passes": 1} times requests; {"end": true} says who
answered and what was compiled since, and ends. Not covered: what the seconds mean (shapes_table.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import shapes_models
from compilot._collector import no_collector
from compilot.api.tracing import requests_of
from compilot.traces.sampling import sample
from compilot.workload.replay import Replay, replayed
from compilot.workload.workload import Workload

FIRST_ANSWERS = 10
SEED = 1  # of the sample; `tune` chooses its plan by the sample of seed 0


def arm_of(name: str, model: str, workload: Workload, plan: str) -> Callable[..., Any]:
    """What answers the calls."""
    if name == "eager":
        return workload.model
    if name == "plan":
        import compilot

        compilot.apply_process(plan)  # as the plan's usage says; nothing where it has no such settings
        return compilot.compile(workload.model, plan)
    if name == "powers":
        return _powers(model, workload.model)
    return torch.compile(workload.model, dynamic=True if name == "dynamic" else None)


def _powers(model: str, module: Any) -> Callable[..., Any]:
    hand, compiled = shapes_models.by_hand(model), dict[tuple[int, ...], Any]()
    assert hand is not None  # or the arm is not raced (shapes_lab.py)

    def call(*args: Any, **kwargs: Any) -> Any:
        padded = hand.pad(kwargs)
        key = tuple(padded["input_ids"].shape)
        if key not in compiled:  # one callable each: more than eight on one forward go silently to eager
            compiled[key] = torch.compile(module, dynamic=False, isolate_recompiles=True)
        return hand.cut(compiled[key](**padded), kwargs)

    return call


def opened(model: str, trace: str, requests: int) -> Workload:
    """The model with a sample of its trace: another one than `tune` replays, which chose the plan."""
    asked = requests_of(shapes_models.calls_of(model, trace), requests)
    return replayed(getattr(shapes_models, model)(), sample(asked.trace, requests, SEED), asked.ranges)


def main(argv: list[str]) -> int:
    """Serve until told to end."""
    model, trace, arm, requests, plan = (*argv, "")[:5]
    workload = opened(model, trace, int(requests))
    begin = time.perf_counter()
    unit = workload.unit(arm_of(arm, model, workload, plan))
    assert isinstance(unit, Replay)
    first_s, ten_s = _first_answers(unit, workload, begin)
    unit.once()
    unit.once()
    if arm == "plan":
        unit.fn._compilot_core.forget_calls()  # type: ignore[attr-defined]
    compiled = _compiled()
    _say({"first_s": first_s, "ten_s": ten_s, "requests": unit.calls})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("end"):
            _say(_ended(unit, compiled))
            return 0
        with no_collector():
            _say({"seconds": unit.time_some(asked["first"], asked["count"], asked["passes"])})
    return 0


def _first_answers(unit: Replay, workload: Workload, begin: float) -> tuple[float, float]:
    """Seconds from `begin` until the first and the tenth answer of the trace are there."""
    moments = []
    with torch.set_grad_enabled(workload.grad):
        for number in workload.replay_order[:FIRST_ANSWERS]:
            args, kwargs = unit.examples[number]
            unit.fn(*args, **kwargs)
            moments.append(time.perf_counter() - begin)
    return moments[0], moments[-1]


def _compiled() -> int:
    from compilot._torch import compiling

    return compiling.graphs_built() if compiling.dynamo_is_here() else 0


def _ended(unit: Replay, before: int) -> dict[str, Any]:
    stats = unit.fn.stats() if hasattr(unit.fn, "stats") else None
    share = stats.fast_share if stats is not None else None
    return {"recompiles": _compiled() - before, "fast_share": share}


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
