"""A worker with several callers: each thread is like the worker's own, and what is timed is what all of them do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.measure.callers import Callers
from compilot.records import Candidate, Guard, ProcessSettings, Settings, Shapes
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.trials.protocol import BatchTimed, CallsTimed, Failed, TimeBatch, TimeCalls, Warm, Warmed
from compilot.trials.steps import trial
from compilot.trials.steps.state import WorkerState
from compilot.trials.thread_state import like_this_thread
from compilot.workload import Workload

LONG_S = 60.0


class Meeting(nn.Module):
    """Once it is armed, a call returns when `callers` of them are inside."""

    def __init__(self, callers: int) -> None:
        super().__init__()
        self.callers = callers
        self.armed: list[threading.Barrier] = []
        self.seen: set[tuple[int, bool]] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add((threading.get_ident(), torch.is_grad_enabled()))
        for meeting in self.armed:
            meeting.wait()
        return x + 1


def guard(load: Workload) -> Guard:
    return make_guard(load.model, load.call, dynamic=(), shapes=Shapes.STATIC, grad=load.grad)


@pytest.fixture
def worker() -> Iterator[Any]:
    """A worker of eager without a process around it."""
    made: list[WorkerState] = []

    def begun(model: nn.Module, *, grad: bool = False) -> WorkerState:
        load = Workload(model.eval(), torch.randn(3, 4), grad=grad)
        steps = WorkerState.__new__(WorkerState)  # its __init__ installs an audit hook for the life of the process
        steps.workload, steps.batch = load, 1
        steps.candidate = Candidate(settings=Settings(), label="eager", rationale="")
        steps.use(load.model, guard(load))
        made.append(steps)
        return steps

    yield begun
    for steps in made:
        steps.call_from(1)


@pytest.mark.parametrize("grad", [False, True])
def test_every_timed_call_is_made_with_all_callers_and_the_workloads_grad_mode(worker: Any, grad: bool) -> None:
    model = Meeting(4)
    steps = worker(model, grad=grad)
    model.armed.append(threading.Barrier(4, timeout=LONG_S))
    model.seen.clear()
    warmed = trial.warm(steps, Warm(for_s=0.05, callers=4))
    assert isinstance(warmed, Warmed)
    assert warmed.calls_per_batch >= 4
    assert len(model.seen) == 4
    assert {mode for _, mode in model.seen} == {grad}
    steps.batch = 8  # the meeting ends only in fours
    timed = trial.time_batch(steps, TimeBatch())
    assert isinstance(timed, BatchTimed)
    assert timed.per_call_s > 0.0
    singles = trial.time_calls(steps, TimeCalls(calls=8, for_s=LONG_S))
    assert isinstance(singles, CallsTimed)
    assert len(singles.call_s) == 8
    assert len(model.seen) == 4  # the same threads all the time


def test_one_caller_is_the_workers_own_thread(worker: Any) -> None:
    model = Meeting(1)
    steps = worker(model)
    trial.warm(steps, Warm(for_s=0.01))
    trial.time_batch(steps, TimeBatch())
    assert {thread for thread, _ in model.seen} == {threading.get_ident()}
    assert steps.callers is None


def test_a_new_callable_begins_with_one_caller_again(worker: Any) -> None:
    steps = worker(nn.Linear(4, 2))
    trial.warm(steps, Warm(for_s=0.01, callers=3))
    assert steps.callers is not None
    steps.use(steps.workload.model, guard(steps.workload))
    assert steps.callers is None


def test_several_examples_count_as_several_calls(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = worker(nn.Linear(4, 2))
    trial.warm(steps, Warm(for_s=0.01, callers=3))
    monkeypatch.setattr(steps.callers, "time_batch", lambda calls: 0.6)
    monkeypatch.setattr(type(steps.unit), "calls", property(lambda self: 2))
    timed = trial.time_batch(steps, TimeBatch())
    assert not isinstance(timed, Failed)
    assert timed.per_call_s == 0.3


class Counting:
    """An engine that counts how many are inside of it at once."""

    def __init__(self, concurrent: bool) -> None:
        self.concurrent = concurrent
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def load(self, request: LoadRequest) -> Loaded:
        def call(x: torch.Tensor) -> Any:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            time.sleep(0.01)
            with self.lock:
                self.inside -= 1
            return request.model(x)

        return Loaded(call=call, concurrent=self.concurrent)


@pytest.mark.parametrize("concurrent", [True, False])
def test_an_engine_that_serves_one_call_at_a_time_is_measured_with_its_lock(worker: Any, concurrent: bool) -> None:
    engine = Counting(concurrent)
    registry.register("counting", None, engine)
    try:
        steps = worker(nn.Linear(4, 2))
        load = steps.workload
        candidate = Candidate(settings=Settings(engine="counting"), label="", rationale="")
        steps.use(attach(load.model, candidate, guard(load), None), guard(load))
        assert isinstance(trial.warm(steps, Warm(for_s=0.1, callers=4)), Warmed)
        timed = trial.time_batch(steps, TimeBatch())
        assert isinstance(timed, BatchTimed)
        assert (engine.most > 1) is concurrent
        if not concurrent:
            assert timed.per_call_s >= 0.01  # they queue: four callers are no faster than one
    finally:
        registry.unregister("counting")


# ---- what torch keeps per thread -----------------------------------------------------------------------------------


def state() -> tuple[object, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        torch.get_default_device(),
        torch.get_num_threads(),
    )


def seen_in_callers(settings: ProcessSettings | None = None) -> list[tuple[object, ...]]:
    seen: list[tuple[object, ...]] = []
    some = Callers(lambda: seen.append(state()), 2, like_this_thread(settings or ProcessSettings()))
    some.once()
    some.close()
    return seen


def test_callers_have_the_state_of_the_thread_that_made_them() -> None:
    assert seen_in_callers() == [state()] * 2
    with torch.no_grad():
        assert seen_in_callers() == [state()] * 2
    with torch.inference_mode():
        assert seen_in_callers() == [state()] * 2
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(False):
        assert seen_in_callers() == [state()] * 2
    with torch.device("meta"):
        assert seen_in_callers() == [state()] * 2


def test_a_bare_thread_would_not_have_it() -> None:
    seen: list[tuple[object, ...]] = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        bare = Callers(lambda: seen.append(state()), 2)
        bare.once()
        bare.close()
        assert state() not in seen


def test_callers_have_the_candidates_threads() -> None:
    before = torch.get_num_threads()
    try:
        seen = seen_in_callers(ProcessSettings(threads=before + 1))
        assert {one[-1] for one in seen} == {before + 1}
    finally:
        torch.set_num_threads(before)
