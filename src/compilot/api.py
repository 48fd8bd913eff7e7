"""The Python door to tuning and to the doctor. In: a model with its inputs, a Workload, or a target string. Out: a Plan
or a DoctorReport.

Covered: everything `compilot tune` and `compilot doctor` do, for live objects too (they are shipped to worker
processes). `tune` shows its progress as the command does. Not covered: printing results.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot._choices import names_in, unknown
from compilot._durations import parse_duration
from compilot.artifacts import homes, planfile, planfolder
from compilot.artifacts.rundir import RunDir
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Objective, Plan, Precision, Shipment
from compilot.showing import watching

if TYPE_CHECKING:
    from torch import nn

    from compilot.diagnose.report_records import DoctorReport
    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec
    from compilot.workload.shapetrace import ShapeSpec

RUNS = Path("compilot-runs")


def tune(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | float = "5m",
    dynamic: DynamicSpec | None = None,
    objective: Objective | str = Objective.LATENCY,
    horizon: int | None = None,
    concurrency: int | None = None,
    engines: str | Sequence[str] = (),
    allow_precision: str | Sequence[Precision | str] = (),
    tolerance: float | None = None,
    max_memory: int | None = None,
    out: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
    progress: bool = True,
) -> Plan:
    """Find the fastest correct way to run the model and prove it; the run directory holds plan.json and the journal.

    Progress is shown on stderr, or below a notebook's cell; progress=False shows none; an observer is told instead.
    allow_precision opens candidates in bf16, fp16 or int8-dynamic; tolerance is the relative RMSE that those may have
    against float64 (default: 2 %, 0.5 % and 5 %). max_memory is in bytes. concurrency: callers at the same time, for
    objective="throughput".
    """
    from compilot.candidates.spaces import asked_engines
    from compilot.tuning import pipeline
    from compilot.tuning.goals import make_goal
    from compilot.tuning.options import TuneOptions

    options = TuneOptions(
        budget_s=_seconds(budget),
        goal=make_goal(objective, horizon, concurrency),
        max_memory_bytes=max_memory,
        **precision_options(allow_precision, tolerance),
        engines=asked_engines(engines),
    )
    workload = _opened(model, args, kwargs)
    run_dir = (Path(out) if out is not None else default_run_dir(_name(workload))).absolute()
    shipment = _ship(workload, dynamic, run_dir)
    with _watched(observer, options.budget_s, progress) as watcher:
        plan = pipeline.run(shipment, run_dir, options, watcher).plan
    return homes.remember(plan, run_dir)


def examine(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: DynamicSpec | None = None,
    shapes: ShapeSpec | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> DoctorReport:
    """What is wrong with compiling this model, where, what it costs, how to fix it.

    shapes are the calls to drive it with, by the sizes of declared dimensions: [{"x:0": 4}, {"x:0": 9}], or a file.
    quick leaves out what takes longest: the compile that is timed. out keeps the report in that folder.
    """
    from compilot.doctor import checkup, report_files
    from compilot.workload.shapetrace import read_trace

    with tempfile.TemporaryDirectory(prefix="compilot-doctor-") as folder:
        shipment = _ship(_opened(model, args, kwargs), dynamic, Path(folder))
        report = checkup.run(shipment, Path(folder), shapes=() if shapes is None else read_trace(shapes))
        if not quick:
            report = checkup.add_times(report, shipment, Path(folder))
    if out is not None:
        report_files.save(report, Path(out))
    return report


def _opened(model: nn.Module | Workload | str, args: Any, kwargs: Mapping[str, Any] | None) -> Workload | str:
    if not isinstance(model, str):
        return _workload(model, args, kwargs)
    if args or kwargs:
        raise InputError("a target brings its own inputs; leave out args and kwargs.")
    return model


def _watched(observer: Observer | None, budget_s: float, progress: bool) -> AbstractContextManager[Observer]:
    return watching(budget_s, quiet=not progress, result=True) if observer is None else nullcontext(observer)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file; PlanError names the field that is wrong.

    A plan that others can change may be looked at so; `compile` and `apply_process` refuse it.
    """
    doubt = planfolder.why_not_trusted(Path(path))  # before it is read: later it may be another file
    return homes.remember(planfile.load_plan(Path(path)), Path(path).parent, doubt, name=Path(path).name)


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan; a reader sees the old file or the new one, whole."""
    planfile.save_plan(plan, Path(path))


def default_run_dir(name: str) -> Path:
    """compilot-runs/NAME-TIMESTAMP, UTC."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "run"
    return RUNS / f"{safe}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _workload(model: nn.Module | Workload, args: Any, kwargs: Mapping[str, Any] | None) -> Workload:
    from compilot.workload import Workload

    if not isinstance(model, Workload):
        return Workload(model, args, kwargs)
    if kwargs or not isinstance(args, tuple | list) or len(args):
        raise InputError("a Workload brings its own inputs; leave out args and kwargs.")
    return model


def _name(workload: Workload | str) -> str:
    return workload.rpartition(":")[2] if isinstance(workload, str) else workload.label


def _seconds(budget: str | float) -> float:
    seconds = parse_duration(budget) if isinstance(budget, str) else float(budget)
    if not seconds > 0:
        raise InputError("the budget must be more than zero; give seconds, or text such as '90s' or '5m'.")
    return seconds


def precision_options(allowed: str | Sequence[Precision | str], tolerance: float | None) -> dict[str, Any]:
    """The options that open lower precisions, checked."""
    known = [p for p in Precision if p is not Precision.AS_IS]
    allowed = names_in(allowed)
    if odd := [name for name in allowed if name not in known]:
        raise unknown("precision", odd[0], known)
    if tolerance is not None and not allowed:
        raise InputError(
            "a tolerance is for lower precisions only; say which with allow_precision (--allow-precision)."
        )
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise InputError("the tolerance is a relative error between 0 and 1, such as 0.02 for 2 %.")
    return {"allow_precision": tuple(dict.fromkeys(map(Precision, allowed))), "tolerance": tolerance}


def _ship(workload: Workload | str, dynamic: DynamicSpec | None, run_dir: Path) -> Shipment:
    from compilot.workload.dispatch import ship_target
    from compilot.workload.dynamic import as_dims

    dims = as_dims(dynamic)
    if isinstance(workload, str):
        return ship_target(workload, extra_dynamic=dims)
    from compilot.workload.shipping import ship

    RunDir(run_dir).refuse_second_run("choose another out")  # before its payload would be overwritten
    return ship(workload.with_dynamic(dims), run_dir)
