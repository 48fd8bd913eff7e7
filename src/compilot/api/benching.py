"""`compilot.bench`: eager, plain torch.compile and plans side by side. In: a model or target, plans. Out: a Bench.

Each arm is built cold, checked, and timed in fresh processes beside eager (arms.py). A plan's declared dimensions are
the bench's too. Not covered: printing the table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from compilot.api.arms import BenchRequest, NamedPlan, measure
from compilot.api.batch_sizes import given_batch_sizes, with_batch_dimension
from compilot.api.given import as_dims, name_of, opened, run_dir_for, shipped, watched
from compilot.api.tracing import requests_of
from compilot.artifacts import homes
from compilot.artifacts.planfolder import PLAN_NAME, open_plan
from compilot.errors import InputError, UntrustedPlan
from compilot.progress import Observer
from compilot.records import DynamicDim, Plan

if TYPE_CHECKING:
    from torch import nn

    from compilot.report.results import Bench
    from compilot.traces.reading import ShapeSpec
    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec

LEAST_PAIRS, MOST_PAIRS = 6, 2000  # fewer have no interval; more are hours
MOST_PROCESSES = 20
REQUESTS = 128  # of a trace, in each process


def bench(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    plans: Sequence[Plan | str | os.PathLike[str]] | Plan | str | os.PathLike[str] = (),
    pairs: int = 40,
    processes: int = 3,
    dynamic: DynamicSpec | None = None,
    trace: ShapeSpec | None = None,
    batch_sizes: str | Sequence[int] | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    argv: Sequence[str] = (),
    observer: Observer | None = None,
    progress: bool = True,
) -> Bench:
    """Measure eager, plain torch.compile and the given plans side by side; what `compilot bench` does.

    plans are plan files, run directories or plans; their candidates are built again. pairs is the number of interleaved
    pairs in each of the processes. dynamic adds to the plans' own dimensions and overrides them. trace is a file of
    sizes, as `record` writes it, or the calls themselves: then every arm answers the same 128 requests of it in the
    same order, each timed beside eager's, and plans are loaded whole, from their own files: `sizes` of the record has
    the figures. What varies there and is not declared gets its range from there. argv is a command line to note in the
    journal.

    batch_sizes, such as [1, 2, 4, 8] or "1,2,4,8", has every arm timed at these batch sizes, too: `batches` of the
    record has the figures and a recommended max_batch_size. Dimension 0 of the inputs then counts as dynamic, from the
    smallest to the largest of them, unless dynamic says otherwise; the example's own size must be in that range.
    """
    from compilot.report.results import bench_of

    if not LEAST_PAIRS <= pairs <= MOST_PAIRS or not 1 <= processes <= MOST_PROCESSES:
        raise InputError(f"give {LEAST_PAIRS} to {MOST_PAIRS} pairs in 1 to {MOST_PROCESSES} processes.")
    if trace is not None and batch_sizes is not None:
        raise InputError("give trace or batch_sizes, not both: the requests of a trace have sizes of their own.")
    named, sizes = _named(plans), given_batch_sizes(batch_sizes)
    if trace is None:
        _refuse_many_sizes(named)
    requests = None if trace is None else requests_of(trace, REQUESTS)
    workload = opened(model, args, kwargs)
    run_dir = run_dir_for(out, f"bench-{name_of(workload)}")
    dims = with_batch_dimension(as_dims(dynamic), sizes)
    shipment = shipped(workload, run_dir, _dimensions([plan for _, plan in named], dims), seed)
    if requests is not None:
        shipment = requests.on(shipment, later=True)
    request = BenchRequest(
        shipment, _label(workload), named, pairs, processes, tuple(argv), sizes, requests.trace if requests else None
    )
    with watched(observer, None, progress) as watcher:
        labels = measure(request, run_dir, watcher)
    return bench_of(run_dir, labels)


def _label(workload: Workload | str) -> str:
    return workload if isinstance(workload, str) else workload.label


def _named(
    plans: Sequence[Plan | str | os.PathLike[str]] | Plan | str | os.PathLike[str],
) -> tuple[NamedPlan, ...]:
    """Each plan with what it is called; UntrustedPlan for one that others could have changed."""
    given = [plans] if isinstance(plans, Plan | str | os.PathLike) else plans
    return tuple(_open(plan, number) for number, plan in enumerate(given, 1))


def _open(plan: Plan | str | os.PathLike[str], number: int) -> NamedPlan:
    if not isinstance(plan, Plan):
        path = Path(plan)
        return NamedPlan(os.fspath(plan), open_plan(path / PLAN_NAME if path.is_dir() else path))
    if why := homes.doubt_about(plan):
        raise UntrustedPlan(why)
    return NamedPlan(f"plan {number}" if plan.path is None else str(plan.path), plan)


def _refuse_many_sizes(plans: Sequence[NamedPlan]) -> None:
    """Programs for other sizes than the example's would be timed beside eager at the example's."""
    for name, plan in plans:
        if any(entry.is_for_sizes for entry in plan.entries):
            lines = 'for batch sizes a file with a line such as {"x:0": 8} for each call will do'
            raise InputError(f"{name}: this plan is for many sizes; give its trace, too ({lines}).")


def _dimensions(plans: Sequence[Plan], asked: Sequence[DynamicDim]) -> tuple[DynamicDim, ...]:
    """What the plans declare, the widest range where several speak of one dimension; what is asked for overrides."""
    widest: dict[tuple[str, int], DynamicDim] = {}
    for dim in (dim for plan in plans for dim in plan.workload.dynamic):
        place = (dim.input, dim.dim)
        known = widest.get(place, dim)
        widest[place] = msgspec.structs.replace(dim, min=min(known.min, dim.min), max=max(known.max, dim.max))
    declared = {place: widest[place] for place in sorted(widest)}
    declared |= {(dim.input, dim.dim): dim for dim in asked}
    return tuple(declared.values())  # the asked ones last: a worker knows what they mean, and the later counts
