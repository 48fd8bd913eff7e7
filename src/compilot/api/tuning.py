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
from compilot.api.batch_sizes import batch_requests, given_batch_sizes, with_batch_dimension
from compilot.api.clusters import on_cluster, runner_for
from compilot.api.given import as_dims, name_of, opened, run_dir_for, shipped, watched
from compilot.api.presets import Preset
from compilot.api.tracing import Requests, requests_of
from compilot.artifacts import homes
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import asked_engines
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Objective, Plan, Precision, RunHeader, Shipment

if TYPE_CHECKING:
    from torch import nn

    from compilot.traces.reading import ShapeSpec
    from compilot.tuning.options import TuneOptions
    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec
    from compilot.workload.pad_spelling import PadSpec

REQUESTS = 256  # of a trace, in one replay: a budget may have room for fewer
MOST_ENTRIES = 64  # programs of one plan
CALLS = "(calls)"  # what a run's header calls a trace that was given as calls


def tune(
    model: nn.Module | Workload | str | None = None,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | float | None = None,
    dynamic: DynamicSpec | None = None,
    trace: ShapeSpec | None = None,
    padding: PadSpec | None = None,
    max_entries: int | None = None,
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
    on: str | None = None,
    nodes: Mapping[str, str] | None = None,
    exchange: str | None = None,
    finish_early: bool = False,
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

    trace is a file of sizes, as `record` writes it, or the calls themselves, such as [{"input_ids:1": 37}]: the plan is
    then chosen for these sizes. It may have several programs, max_entries at the most (8 unless you say otherwise), and
    is decided by replaying a sample of the trace; what varies there and is not declared gets its range from there.
    padding says what may be put into inputs where a call is shorter than a program, such as {"input_ids": 0}, besides
    the workload's own; calls are padded only where that is proven to change no answer.

    batch_sizes, such as [1, 2, 4, 8] or "1,2,4,8", has the plan chosen for these batch sizes as for a trace in which
    each of them has as many samples: it may have several programs, max_entries at the most, and answer large calls in
    parts where that is proven and faster. `compilot.results` has latency and samples per second of eager and the plan
    at each, and a recommended max_batch_size. Dimension 0 of the inputs then counts as dynamic, unless dynamic says
    otherwise. Not together with a trace. On a cluster, and for other objectives than latency, sizes are only timed in
    the end.

    prior says whether earlier runs on this machine order the trials; `compilot.explain` returns the default.

    on runs the candidates on the nodes of a Ray cluster: whatever `ray.init` takes as an address ("auto", "HOST:PORT",
    "ray://HOST:PORT"); "ray" means "auto". nodes has labels that the nodes must have. The run directory stays here.
    exchange is a URL that all machines reach, for large files between them; without one they go through Ray.

    finish_early: the first Ctrl-C while candidates are tried does not raise, once one of them is faster than eager: the
    best so far is confirmed, and its plan returned. Another Ctrl-C raises. Not on a cluster.

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
    _refuse_both(trace, sizes, earlier)
    requests = _requests(trace, earlier)
    if requests is not None and options.goal.concurrency > 1:
        raise InputError("the calls of a trace are replayed by one caller; leave out concurrency, or the trace.")
    requests = requests or _of_batch_sizes(options, on)
    options = options._replace(
        trace=requests.trace if requests is not None else None,
        max_entries=given_entries(max_entries, requests, options),
    )
    options = on_cluster(options, on, nodes, exchange)
    asked_engines(options.engines)  # each must be usable here
    if earlier is None:
        dims = with_batch_dimension(as_dims(dynamic), sizes)
        run_dir, shipment = _begun(model, args, kwargs, dims, seed, out, padding, requests)
    else:
        run_dir = Path(resume or "").absolute()
        if padding:
            raise InputError("a run continues with its own padding; leave out padding, or start a new run.")
        shipment = _resumed(earlier, run_dir, opened(model, args, kwargs) if model is not None else None, dynamic, seed)
        shipment = shipment if requests is None else requests.on(shipment, later=True)
    from compilot.tuning import pipeline  # after what can be said without it

    with watched(observer, options.budget_s, progress) as watcher:
        try:
            plan = pipeline.run(
                *(shipment, run_dir, options, watcher),
                resume=earlier is not None,
                make_runner=runner_for(options),
                finish_early=finish_early,
            ).plan
        except KeyboardInterrupt:
            if RunDir(run_dir).holds_run:
                watcher.interrupted(run_dir)
            raise
    homes.remember(plan, run_dir)
    if pack is not None:
        from compilot.api import bundling

        bundling.pack(run_dir, pack, observer=observer, progress=progress)
    return plan


def _refuse_both(trace: ShapeSpec | None, sizes: Sequence[int], earlier: RunHeader | None) -> None:
    """A trace and batch sizes, given now or by the run that is resumed."""
    traced = trace is not None or (earlier is not None and bool(earlier.trace))
    batched = bool(sizes) or (earlier is not None and bool(earlier.batch_sizes))
    if traced and batched and (trace is not None or sizes):
        raise InputError("give trace or batch_sizes, not both: the calls of a trace have sizes of their own.")


def _requests(trace: ShapeSpec | None, earlier: RunHeader | None) -> Requests | None:
    """The trace that is given, or that of the run which is resumed."""
    if trace is None and earlier is not None and earlier.trace:
        if earlier.trace == CALLS:
            raise InputError("this run was given the calls of a trace; give them again (trace) to continue it.")
        trace = Path(earlier.trace)
    return None if trace is None else requests_of(trace, REQUESTS)


def _of_batch_sizes(options: TuneOptions, on: str | None) -> Requests | None:
    """The calls that a plan for batch sizes is chosen by; None: they are only timed in the end.

    A replay is of one caller's time on one machine: other goals and clusters have one program for all sizes.
    """
    by_time = options.goal.objective in (Objective.LATENCY, Objective.THROUGHPUT) and options.goal.concurrency == 1
    return batch_requests(options.batch_sizes) if by_time and not (on or options.on) else None


def given_entries(given: int | None, requests: Requests | None, before: TuneOptions) -> int | None:
    """How many programs a plan may have; None: the usual number."""
    if given is None:
        return before.max_entries
    if requests is None:
        raise InputError("max_entries is for plans that serve a trace or batch sizes; give one, or leave it out.")
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_ENTRIES:
        raise InputError(f"give 1 to {MOST_ENTRIES} entries (max_entries); not {given!r}.")
    return given


def _begun(
    model: nn.Module | Workload | str | None,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    dynamic: DynamicSpec | None,
    seed: int | None,
    out: str | os.PathLike[str] | None,
    padding: PadSpec | None = None,
    requests: Requests | None = None,
) -> tuple[Path, Shipment]:
    """A new run's directory, and what its workers need; with live objects it is noted how they are rebuilt."""
    if model is None:
        what = "path/to/file.py:factory or package.module:factory (in Python a model with its inputs, too)"
        raise InputError(f"name what to tune: {what}, or a run to resume.")
    workload = opened(model, args, kwargs)
    run_dir = run_dir_for(out, name_of(workload))
    shipment = shipped(workload, run_dir, as_dims(dynamic), seed, padding)
    shipment = shipment if requests is None else requests.on(shipment, later=True)
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
        seed = earlier.workload.seed if seed is None else seed
        return shipped(target, run_dir, dims, seed, earlier.workload.padding)
    if not RunDir(run_dir).shipment.exists():
        raise InputError(f"{run_dir} was tuned from Python objects and cannot be resumed here; tune again in Python.")
    if dynamic or seed is not None:
        raise InputError("a run of Python objects continues with its own inputs; leave out seed and dynamic.")
    return RunDir(run_dir).open_shipment()
