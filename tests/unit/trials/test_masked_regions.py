"""Regions that turn calls with a mask down, as models leave out a mask that masks nothing: a caveat, and no failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot.boundary.build import build
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest, Loaded, LoadRequest
from compilot.measure.correctness import make_reference
from compilot.records import Candidate, Region, Settings, Shapes, State
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.trials.protocol import Failed, Verified, Verify
from compilot.trials.steps import trial
from compilot.trials.steps.state import WorkerState
from compilot.workload import Workload
from compilot.workload.variations import cases

REGIONS = (Region(selector="layers.*", settings=Settings(engine="moody")),)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        found: torch.Tensor = self.linear(x)
        return found if mask is None else found * mask.unsqueeze(-1)


class Net(nn.Module):
    """Hands a mask on only where it masks something, as Hugging Face's models do."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        given = None if bool(mask.all()) else mask.to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask=given)
        return x


class Choosy(Net):
    """Calls its layers in another way where the values of another input say so."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        given = None if bool(x.any()) else torch.ones(x.shape[:-1])
        for layer in self.layers:
            x = layer(x, mask=given)
        return x


class Moody:
    """Answers as the submodule does, unless its mood says otherwise."""

    def __init__(self) -> None:
        self.mood: Callable[[torch.Tensor], torch.Tensor] = lambda x: x

    def build(self, request: BuildRequest) -> tuple[()]:
        return ()

    def load(self, request: LoadRequest) -> Loaded:
        return Loaded(call=lambda x, mask=None: request.model(self.mood(x), mask=mask))


@pytest.fixture
def moody() -> Iterator[Moody]:
    engine: Any = Moody()
    registry.register("moody", engine, engine)
    yield engine
    registry.unregister("moody")


def verified(folder: Path, model: nn.Module, mask: torch.Tensor) -> Any:
    """What a worker says of a candidate with regions."""
    load = Workload(model.eval(), (torch.randn(2, 3, 4), mask))
    guard = make_guard(load.model, load.call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(), label="regional", rationale="", regions=REGIONS)
    build(BuildRequest(load.model, load.call, guard, candidate, folder))
    steps = WorkerState.__new__(WorkerState)  # its __init__ installs an audit hook for the life of the process
    steps.workload, steps.candidate, steps.batch = load, candidate, 1
    steps.use(attach(load.model, candidate, guard, folder), guard)
    reference = make_reference(load, cases(load), folder)
    return trial.verify(steps, Verify(references=str(folder), reference=reference))


ONES = torch.ones(2, 3, dtype=torch.long)


def test_regions_that_are_called_in_another_way_under_a_mask_are_a_caveat(moody: Moody, tmp_path: Path) -> None:
    reply = verified(tmp_path, Net(), ONES)
    assert isinstance(reply, Verified), reply
    assert reply.check.passed, reply.check.why
    assert reply.check.caveats == (
        "calls with such a mask run layers.0, layers.1 in eager: first row of args[1] masked",
    )


def test_many_regions_are_counted(moody: Moody, tmp_path: Path) -> None:
    (caveat,) = verified(tmp_path, Net(5), ONES).check.caveats
    assert "run layers.0, layers.1, layers.2 and 2 more in eager" in caveat


def test_an_example_whose_mask_masks_something_needs_no_caveat(moody: Moody, tmp_path: Path) -> None:
    mask = ONES.clone()
    mask[:, -1] = 0
    reply = verified(tmp_path, Net(), mask)
    assert isinstance(reply, Verified), reply
    assert (reply.check.passed, reply.check.caveats) == (True, ())


def test_another_way_that_no_mask_asks_for_is_still_no_answer_of_the_candidate(moody: Moody, tmp_path: Path) -> None:
    reply = verified(tmp_path, Choosy(), ONES)
    assert isinstance(reply, Failed)
    assert reply.state is State.INFEASIBLE
    assert "in layers.0: type of kwargs['mask']" in reply.reason


@pytest.mark.filterwarnings("ignore:the compiled layers.0 failed")
def test_a_region_that_fails_beside_is_no_caveat(moody: Moody, tmp_path: Path) -> None:
    def fails_on_zeros(x: torch.Tensor) -> torch.Tensor:
        if not x.any():
            raise RuntimeError("no kernel for zeros")
        return x

    moody.mood = fails_on_zeros
    reply = verified(tmp_path, Net(), ONES)
    assert isinstance(reply, Failed)
    assert "engine failed" in reply.reason
