"""A life for bench/boundary.py: `python boundary_life.py JOB FOLDER` starts cold, makes its calls, says what it took.

In: a job in JSON (target, candidate, calls) and an empty folder. Out, on the last line: seconds of build and first
call, of all other calls together, C++ compiler runs, programs, how far the last answer is from eager's. The callable is
the one that `compilot.compile` gives its user. Whoever starts this process times it as a whole.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot.boundary.build import build
from compilot.engines.of_candidate import traits_of
from compilot.engines.protocol import BuildRequest
from compilot.measure.build_cost import CompilerRuns
from compilot.records import Candidate
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.runtime.process import apply_settings
from compilot.workload.target import load_target


def main(job: str, folder: str) -> None:
    asked = json.loads(job)
    candidate = msgspec.convert(asked["candidate"], Candidate)
    apply_settings(candidate.process)
    if traits_of(candidate).through_dynamo:
        importlib.import_module("torch._dynamo")  # a target registers its backends where this is there
    load = load_target(asked["target"])
    runs = CompilerRuns().install()
    with torch.set_grad_enabled(load.grad):
        print(json.dumps(lived(load, candidate, Path(folder), asked["calls"], runs)))


def lived(load: Any, candidate: Candidate, folder: Path, calls: int, runs: CompilerRuns) -> dict[str, Any]:
    """Build, call, count."""
    call = load.call
    folder.mkdir(parents=True)
    begin = time.perf_counter()
    if candidate.is_eager:
        fast, stats = load.model, None
    else:
        guard = make_guard(load.model, call, dynamic=load.dynamic, shapes=candidate.settings.shapes, grad=load.grad)
        build(BuildRequest(load.model, call, guard, candidate, folder))
        fast = attach(load.model, candidate, guard, folder)
        fast.prepare(call)
        stats = fast.stats
    answer = fast(*call.args, **call.kwargs)
    started = time.perf_counter()
    for _ in range(calls - 1):
        answer = fast(*call.args, **call.kwargs)
    ended = time.perf_counter()
    counted = stats() if stats is not None else None
    if counted is not None and counted.fallbacks:
        raise SystemExit(f"eager answered: {counted.fallbacks}")
    return {
        "start_s": started - begin,
        "call_s": ended - started,
        "compiler_runs": runs.count - runs.headers,
        "programs": counted.compiles if counted is not None else 0,
        "error": difference(answer, load.model(*call.args, **call.kwargs)),
    }


def difference(one: Any, other: Any) -> float:
    """The largest between two answers, over all their tensors."""
    pairs = zip(torch.utils._pytree.tree_leaves(one), torch.utils._pytree.tree_leaves(other), strict=True)
    found = [(a.double() - b.double()).abs().max().item() for a, b in pairs if isinstance(a, torch.Tensor)]
    return max(found, default=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
