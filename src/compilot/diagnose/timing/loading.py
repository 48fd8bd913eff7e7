"""The input pipeline: does the step wait for its data?

In: a workload with a loader. Out: `InputPipeline`: seconds per step spent waiting for the next batch, and per whole
step. The model works on its example between two batches, as it would in real life, so loader workers that keep up cost
nothing. The first batch is not counted: it starts the workers; neither does its time count against what the others may
take, so even of the slowest loader one step is seen. Not covered: whether the batches fit the model.
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
LONGEST_S = 10.0  # for the counted steps; one under way is waited for
FEW = 3  # from fewer steps than this, the share is reported with a word of caution
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

    seen = _run(batches, lambda: fresh(call), work)
    if not seen.steps:
        given = "one batch" if seen.first else "no batch at all"
        return InputPipeline(load_s=0.0, step_s=0.0, because=f"the loader gave {given} and ended; nothing to time")
    wait_s = sum(step.wait_s for step in seen.steps) / len(seen.steps)
    work_s = sum(step.work_s for step in seen.steps) / len(seen.steps)
    step_s = wait_s + work_s
    because = sentence(wait_s, step_s) + (_few(len(seen.steps), wait_s) if seen.out_of_time else "")
    return InputPipeline(load_s=wait_s, step_s=step_s, steps=len(seen.steps), because=because)


def _few(steps: int, wait_s: float) -> str:
    if steps >= FEW:
        return ""
    return f" (a batch takes {wait_s:.1f} s, so only {steps} {'step was' if steps == 1 else 'steps were'} looked at)"


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


class _Seen(NamedTuple):
    first: bool  # there was a first batch, the one that does not count
    steps: list[_Step]
    out_of_time: bool  # the loader had more to give


def _run(batches: Iterator[Any], prepare: Callable[[], Call], work: Callable[[Call], None]) -> _Seen:
    """Step after step, until the loader ends or the time is over; the clock starts after the first one."""
    if _step(batches, prepare(), work) is None:
        return _Seen(first=False, steps=[], out_of_time=False)
    steps: list[_Step] = []
    begin = time.perf_counter()
    while len(steps) < STEPS:
        step = _step(batches, prepare(), work)
        if step is None:
            return _Seen(first=True, steps=steps, out_of_time=False)
        steps.append(step)
        if time.perf_counter() - begin > LONGEST_S:
            return _Seen(first=True, steps=steps, out_of_time=True)
    return _Seen(first=True, steps=steps, out_of_time=False)


def _step(batches: Iterator[Any], call: Call, work: Callable[[Call], None]) -> _Step | None:
    """One batch and the work after it; None: the loader ended. The call's own copy was made before, untimed."""
    before = time.perf_counter()
    if next(batches, _END) is _END:
        return None
    loaded = time.perf_counter()
    work(call)
    return _Step(loaded - before, time.perf_counter() - loaded)


_END = object()
