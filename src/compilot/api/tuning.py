"""`compilot.tune`: the main job. In: a model with its inputs, a Workload, or a target string. Out: a Plan.

Covered: everything that `compilot tune` does, for live objects too (they are shipped to worker processes); progress is
shown as the command shows it. A run that is resumed has the model and the options that it was begun with, except those
that are given again. Not covered: printing the result (`compilot.results` has its figures).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.api.asking import Given, options_for
from compilot.api.batch_sizes import given_batch_sizes, with_batch_dimension
from compilot.api.given import as_dims, name_of, opened, run_dir_for, shipped, watched
from compilot.api.presets import Preset
from compilot.artifacts import homes
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import asked_engines
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Objective, Plan, Precision, RunHeader, Shipment

if TYPE_CHECKING:
    from torch import nn

    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec


def tune(
    model: nn.Module | Workload | str | None = None,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | float | None = None,
    dynamic: DynamicSpec | None = None,
    batch_sizes: str | Sequence[int] | None = None,
    objective: Objective | str | None = None,
    horizon: int | None = None,
    concurrency: int | None = None,
    engines: str | Sequence[str] | None = None,
    allow_precision: str | Sequence[Precision | str] | None = None,
    tolerance: float | None = None,
    max_memory: str | int | None = None,
    max_compile: str | float | None = None,
    max_error: float | None = None,
    prior: bool | None = None,
    preset: Preset | str | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    pack: str | os.PathLike[str] | None = None,
    argv: Sequence[str] = (),
    observer: Observer | None = None,
    progress: bool = True,
) -> Plan:
    """Find the fastest correct way to run the model and prove it; the run directory holds plan.json and the journal.

    budget is the time for everything: seconds, or text such as "90s"; the default is 5 minutes. objective is "latency"
    unless another is given; concurrency is the number of callers at the same time for "throughput". Progress is shown
    on stderr, or below a notebook's cell; progress=False shows none; an observer hears it instead.

    allow_precision opens candidates in bf16, fp16 or int8-dynamic; tolerance is the relative RMSE that those may have
    against float64 (default: 2 %, 0.5 % and 5 %). Limits for every candidate: max_memory in bytes, or text such as
    "8GiB"; max_compile, the longest cold start (build and first call), in seconds or as text such as "30s"; max_error,
    the largest relative RMSE against float64. seed makes the inputs that are varied; the default is the model's own.

    preset is "dev", "research", "production" or "fleet": options that go together. Those that you give count more;
    `compilot.explain` returns what would be used.

    batch_sizes, such as [1, 2, 4, 8] or "1,2,4,8", has eager and the plan timed at these batch sizes in the end, for a
    few seconds each beyond the budget; `compilot.results` has the figures and a recommended max_batch_size. Dimension 0
    of the inputs then counts as dynamic, unless dynamic says otherwise.

    prior says whether earlier runs on this machine order the trials; `compilot.explain` returns the default.

    resume continues the run in that directory: leave out the model, and give only what is to change. pack writes
    the plan into this bundle when it is done. argv is a command line to note in the journal.
    """
    if resume is not None and out is not None:
        raise InputError("resume names the run directory already; do not give out as well.")
    earlier = None if resume is None else RunDir(Path(resume).absolute()).last_header()
    given = Given(
        *(budget, objective, horizon, concurrency, engines),
        *(allow_precision, tolerance, max_memory, max_compile, max_error),
        prior=prior,
    )
    options = options_for(given, preset, earlier)._replace(argv=tuple(argv))
    sizes = given_batch_sizes(batch_sizes)
    if sizes:
        options = options._replace(batch_sizes=sizes)
    asked_engines(options.engines)  # each must be usable here
    if earlier is None:
        run_dir, shipment = _begun(model, args, kwargs, with_batch_dimension(as_dims(dynamic), sizes), seed, out)
    else:
        run_dir = Path(resume or "").absolute()
        shipment = _resumed(earlier, run_dir, opened(model, args, kwargs) if model is not None else None, dynamic, seed)
    from compilot.tuning import pipeline  # after what can be said without it

    with watched(observer, options.budget_s, progress) as watcher:
        try:
            plan = pipeline.run(shipment, run_dir, options, watcher, resume=earlier is not None).plan
        except KeyboardInterrupt:
            if RunDir(run_dir).holds_run:
                watcher.interrupted(run_dir)
            raise
    homes.remember(plan, run_dir)
    if pack is not None:
        from compilot.api import bundling

        bundling.pack(run_dir, pack, observer=observer, progress=progress)
    return plan


def _begun(
    model: nn.Module | Workload | str | None,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    dynamic: DynamicSpec | None,
    seed: int | None,
    out: str | os.PathLike[str] | None,
) -> tuple[Path, Shipment]:
    """A new run's directory, and what its workers need; with live objects it is noted how they are rebuilt."""
    if model is None:
        what = "path/to/file.py:factory or package.module:factory (in Python a model with its inputs, too)"
        raise InputError(f"name what to tune: {what}, or a run to resume.")
    workload = opened(model, args, kwargs)
    run_dir = run_dir_for(out, name_of(workload))
    shipment = shipped(workload, run_dir, as_dims(dynamic), seed)
    if shipment.payload is not None:
        RunDir(run_dir).keep_shipment(shipment)  # so that it can be resumed
    return run_dir, shipment


def _resumed(
    earlier: RunHeader, run_dir: Path, workload: Workload | str | None, dynamic: DynamicSpec | None, seed: int | None
) -> Shipment:
    """What the workers of a resumed run need: its own target or live objects."""
    if workload is not None and not isinstance(workload, str):
        raise InputError(f"{run_dir} has the model that it was begun with; leave out the model to continue it.")
    target = workload or earlier.workload.target
    if target is not None:
        dims = as_dims(dynamic) or earlier.workload.dynamic
        return shipped(target, run_dir, dims, earlier.workload.seed if seed is None else seed)
    if not RunDir(run_dir).shipment.exists():
        raise InputError(f"{run_dir} was tuned from Python objects and cannot be resumed here; tune again in Python.")
    if dynamic or seed is not None:
        raise InputError("a run of Python objects continues with its own inputs; leave out seed and dynamic.")
    return RunDir(run_dir).open_shipment()
