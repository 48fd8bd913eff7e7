"""The input pipeline (P6): does the step wait for its data?

In: a workload with a loader. Out: `InputPipeline`: seconds per step spent waiting for the next batch, and per whole
step. The model works on its example between two batches, as it would in real life, so loader workers that keep up cost
nothing. The first batch is not counted: it starts the workers. Not covered: whether the batches fit the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compilot.diagnose.driving import fresh
from compilot.diagnose.report_records import InputPipeline

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.workload import Workload

STEPS = 30
LONGEST_S = 10.0
LIMIT = 0.5  # above this share, whatever a compiler gains is less than half of the step
NOTICEABLE = 0.1


class _Step(NamedTuple):
    wait_s: float
    work_s: float


def measure_loading(workload: Workload, call: Call) -> InputPipeline | None:
    """Drive the loader and the model together for a while; None when the workload has no loader."""
    if workload.loader is None:
        return None
    batches = iter(open_loader(workload.loader))

    def work(call: Call) -> None:
        with torch.set_grad_enabled(workload.grad):
            workload.model(*call.args, **call.kwargs)

    steps = list(_steps(batches, lambda: fresh(call), work))
    if not steps:
        return InputPipeline(load_s=0.0, step_s=0.0, because="the loader gave no more than one batch; nothing to time")
    wait_s = sum(step.wait_s for step in steps) / len(steps)
    work_s = sum(step.work_s for step in steps) / len(steps)
    step_s = wait_s + work_s
    return InputPipeline(load_s=wait_s, step_s=step_s, steps=len(steps), because=sentence(wait_s, step_s))


def open_loader(loader: Any) -> Iterable[Any]:
    """The loader itself, or what a function without arguments makes."""
    makes_one = callable(loader) and not hasattr(loader, "__iter__")
    return loader() if makes_one else loader  # type: ignore[no-any-return]


def sentence(wait_s: float, step_s: float) -> str:
    """What the share of waiting means."""
    share = wait_s / step_s if step_s else 0.0
    if share >= LIMIT:
        return f"data loading is {share * 100:.0f} % of the step; compiling will not help"
    if share >= NOTICEABLE:
        return f"data loading is {share * 100:.0f} % of the step; a faster model makes it more"
    return f"data loading is {share * 100:.0f} % of the step; the loader keeps up"


def _steps(batches: Iterator[Any], prepare: Callable[[], Call], work: Callable[[Call], None]) -> Iterator[_Step]:
    """One step after the other; each gets its own copy of what a call may change, made outside of both times."""
    begin = time.perf_counter()
    for number in range(STEPS + 1):
        call = prepare()
        before = time.perf_counter()
        if next(batches, _END) is _END:
            return
        loaded = time.perf_counter()
        work(call)
        done = time.perf_counter()
        if number:
            yield _Step(loaded - before, done - loaded)
        if done - begin > LONGEST_S:
            return


_END = object()
