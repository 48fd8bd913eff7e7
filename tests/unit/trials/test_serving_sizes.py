"""A candidate is judged and timed by its own answers: where eager answers in its place, it is infeasible."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest, NotTaken
from compilot.measure.correctness import make_reference
from compilot.measure.padding import prove_padding
from compilot.records import Candidate, Settings, Shapes, State
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.trials.protocol import (
    BatchTimed,
    CallsTimed,
    CheckPadding,
    Failed,
    TimeBatch,
    TimeCalls,
    Verified,
    Verify,
    Warm,
)
from compilot.trials.serving import Serving
from compilot.trials.steps import sizes, trial
from compilot.trials.steps.state import WorkerState
from compilot.workload import Workload
from compilot.workload.variations import cases

DYNAMIC = {"input": {0: (1, 8)}}


class Moody:
    """Answers as the model does, unless its mood says otherwise."""

    def __init__(self) -> None:
        self.mood: Callable[..., None] = lambda *tensors: None

    def load(self, request: LoadRequest) -> Loaded:
        def call(*tensors: torch.Tensor) -> Any:
            self.mood(*tensors)
            return request.model(*tensors)

        return Loaded(call=call)


@pytest.fixture
def moody() -> Iterator[Moody]:
    engine = Moody()
    registry.register("moody", None, engine)
    yield engine
    registry.unregister("moody")


def worker(shapes: Shapes = Shapes.DYNAMIC, load: Workload | None = None) -> WorkerState:
    """A worker that has built a model (a linear layer) on the moody engine, without a process around it."""
    load = load or Workload(nn.Linear(4, 2).eval(), torch.randn(3, 4), dynamic=DYNAMIC)
    guard = make_guard(load.model, load.call, dynamic=load.dynamic, shapes=shapes, grad=False)
    candidate = Candidate(settings=Settings(engine="moody", shapes=shapes), label="moody", rationale="")
    steps = WorkerState.__new__(WorkerState)  # its __init__ installs an audit hook for the life of the process
    steps.workload, steps.candidate, steps.batch = load, candidate, 1
    steps.use(attach(load.model, candidate, guard, None), guard)
    return steps


def verify(steps: WorkerState, folder: Path) -> Any:
    reference = make_reference(steps.workload, cases(steps.workload), folder)
    return trial.verify(steps, Verify(references=str(folder), reference=reference))


def at_size(size: int, error: Exception) -> Callable[[torch.Tensor], None]:
    def mood(x: torch.Tensor) -> None:
        if x.shape[0] == size:
            raise error

    return mood


@pytest.mark.filterwarnings("ignore:the compiled model failed")
@pytest.mark.parametrize(
    ("error", "reason"),
    [(RuntimeError("no kernel for this size"), "engine failed"), (NotTaken("too long"), "does not take this call")],
)
def test_eagers_answer_in_its_place_does_not_pass_as_the_candidates(moody, tmp_path, error, reason):
    steps = worker()
    moody.mood = at_size(8, error)
    reply = verify(steps, tmp_path)
    assert isinstance(reply, Failed)
    assert reply.state is State.INFEASIBLE
    assert "(case largest)" in reply.reason
    assert reason in reply.reason
    assert str(error) in reply.reason


def test_a_candidate_that_serves_every_declared_size_passes(moody, tmp_path):
    reply = verify(worker(), tmp_path)
    assert isinstance(reply, Verified)
    assert reply.check.passed, reply.check.why


def test_eager_as_the_candidate_is_served_by_eager_by_right():
    load = Workload(nn.Linear(4, 2).eval(), torch.randn(3, 4))
    guard = make_guard(load.model, load.call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    fast = attach(load.model, Candidate(settings=Settings(), label="eager", rationale=""), guard, None)
    serving = Serving(fast, load.model, guard)
    fast(*load.call.args)
    assert fast.stats().fast == 0
    assert (serving.missed(load.call), serving.new()) == (None, [])


def test_sizes_that_a_static_candidate_never_promised_are_eagers_by_right(moody, tmp_path):
    steps = worker(Shapes.STATIC)
    reply = verify(steps, tmp_path)
    assert isinstance(reply, Verified)
    assert reply.check.passed, reply.check.why
    assert "shape of args[0]" in next(iter(steps.fn.stats().fallbacks))


class Apart(nn.Module):
    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x.mean(0) + other.mean(0)


def at_unequal_sizes(error: Exception) -> Callable[..., None]:
    def mood(x: torch.Tensor, other: torch.Tensor) -> None:
        if x.shape != other.shape:
            raise error

    return mood


@pytest.mark.filterwarnings("ignore:the compiled model failed")
def test_unequal_sizes_may_be_left_to_eager_but_not_fail(moody, tmp_path):
    dims = {"x": {0: (1, 8)}, "other": {0: (1, 8)}}
    load = Workload(Apart().eval(), (torch.randn(3, 4), torch.randn(3, 4)), dynamic=dims)
    turned_down, failing = worker(load=load), worker(load=load)
    moody.mood = at_unequal_sizes(NotTaken("dimension 0 of args[1] differs"))
    reply = verify(turned_down, tmp_path)
    assert isinstance(reply, Verified)
    assert reply.check.passed, reply.check.why
    assert any("such calls go to eager" in note and "differs" in note for note in reply.check.notes)
    moody.mood = at_unequal_sizes(RuntimeError("shape mismatch"))
    reply = verify(failing, tmp_path)
    assert isinstance(reply, Failed)
    assert "at 2, not 3" in reply.reason


@pytest.mark.filterwarnings("ignore:the compiled model failed")
def test_eagers_time_is_never_given_as_the_candidates(moody):
    steps = worker()
    assert isinstance(trial.time_batch(steps, TimeBatch()), BatchTimed)
    assert isinstance(trial.time_calls(steps, TimeCalls(calls=3, for_s=1.0)), CallsTimed)
    moody.mood = at_size(3, RuntimeError("out of workspace"))
    timed = [
        trial.time_batch(steps, TimeBatch()),
        trial.time_calls(steps, TimeCalls(calls=3, for_s=1.0)),
        trial.warm(steps, Warm(for_s=0.01)),
    ]
    assert all(isinstance(reply, Failed) and reply.state is State.INFEASIBLE for reply in timed)
    assert "out of workspace" in timed[0].reason
    assert "switched off" in timed[2].reason


def test_what_padding_takes_does_not_depend_on_how_the_engine_scatters(moody: Moody) -> None:
    steps = worker(load=Workload(nn.Linear(4, 2).eval(), torch.randn(8, 4), dynamic=DYNAMIC))
    calls = itertools.count(1)
    moody.mood = lambda x: time.sleep(0.020 * (next(calls) % 2 == 0))  # every second call is slow
    padding = prove_padding(steps.workload).padding
    assert padding is not None
    seen = sizes.check_padding(steps, CheckPadding(padding=padding))
    assert seen.leak is None
    assert 0.0 < seen.pad_s < 0.010
