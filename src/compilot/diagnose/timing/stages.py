"""Where compile time goes: by stage and by submodule; what could be saved is in savings.py.

In: a workload and an empty folder. Out: `CompileTime` and `StageTime` records of one cold compile with torch's
defaults; the stages add up to the wall time of the first call, what nobody accounts for is "other".
Covered: forward graphs, C++ compiler runs, the one-off header build. Not covered: other engines, backward graphs. Runs
in a child process: it compiles the model, counts with an audit hook, and reads the process's own cache directory.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compilot._torch import compiling
from compilot._torch.timeline import Mark, timeline
from compilot.diagnose import trusted
from compilot.diagnose.driving import fresh
from compilot.diagnose.report_records import CompileTime, StageTime
from compilot.diagnose.timing.savings import CACHED, savings
from compilot.diagnose.timing.spans import Phase, Stage, phases, spans, stage_times
from compilot.measure.build_cost import CompilerRuns

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.workload import Workload

RECOMPILE_LIMIT = 16  # the engine's own: a model that recompiles while it is examined shows its real cost


class Compiled(NamedTuple):
    """One cold compile: its figures, and its stages for the whole model and by submodule."""

    time: CompileTime
    stages: tuple[StageTime, ...]


def measure_compile(workload: Workload, call: Call, workspace: Path) -> Compiled:
    """Compile the model in an empty cache directory and account for every moment of it."""
    operators: Counter[str] = Counter()
    counts = CompilerRuns().install()
    with compiling.cache_directory(workspace / "inductor-stages"):
        first = fresh(call)
        others = trusted.Others()
        begin = time.time()
        fn = _compiled(workload, operators)
        imported_s = time.time() - begin
        with timeline() as marks, torch.set_grad_enabled(workload.grad):
            fn(*first.args, **first.kwargs)
        total_s = time.time() - begin
        if others.crowd():
            raise trusted.Untrusted(trusted.LEFT_OUT)
        run_s = _timed(fn, fresh(call), workload.grad)
    found = [*phases(_mine(marks)), Phase("inductor_import", "", begin, begin + imported_s)]
    found.sort(key=lambda phase: (phase.begin_s, -phase.end_s))
    stages = stage_times(found, total_s, run_s)
    made = CompileTime(
        total_s=total_s,
        compiler_runs=counts.count,
        header_builds=counts.headers,
        graphs=len({phase.compile_id for phase in found if phase.name == "backend_compile"}),
        spans=spans(found, begin),
        savings=savings(workload.model, stages, operators),
    )
    return Compiled(made, (*stages, *by_submodule(stages, operators)))


def by_submodule(stages: tuple[StageTime, ...], operators: Counter[str]) -> tuple[StageTime, ...]:
    """Each stage's time shared out over submodules by their number of operators: an estimate."""
    total = operators.total()
    if not total:
        return ()
    shared = [stage for stage in stages if stage.name in {*CACHED, Stage.CAPTURE} and stage.wall_s > 0]
    return tuple(
        StageTime(name=stage.name, wall_s=stage.wall_s * count / total, submodule=path)
        for path, count in operators.most_common()
        if path
        for stage in shared
    )


def _compiled(workload: Workload, operators: Counter[str]) -> Callable[..., Any]:
    from compilot._torch.modulestack import counting_backend, operators_by_module

    backend = counting_backend(lambda graph: operators.update(operators_by_module(graph, workload.model)))
    return compiling.compile_module(
        workload.model, backend=backend, options={}, dynamic=False, recompile_limit=RECOMPILE_LIMIT
    )


def _timed(fn: Callable[..., Any], call: Call, grad: bool) -> float:
    """A call of the finished code: what the first call spent on the model itself."""
    begin = time.time()
    with torch.set_grad_enabled(grad):
        fn(*call.args, **call.kwargs)
    return time.time() - begin


def _mine(marks: list[Mark]) -> list[tuple[str, bool, float, str]]:
    """The marks of this thread: others compile in parallel while it waits, and that wait is what counts."""
    own = threading.get_ident()
    return [(mark.name, mark.begins, mark.at_s, mark.compile_id) for mark in marks if mark.thread == own]
