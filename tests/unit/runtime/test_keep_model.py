"""keep_model=False: the weights are really freed, and what eager would have answered is a typed error."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.errors import InputError, NoFallback, StalePlan
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    DynamicDim,
    Evidence,
    Fingerprint,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime import compile as apply_plan
from compilot.runtime.clone import skeleton
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard

X = torch.randn(2, 3)


class FileEngine:
    """Holds everything it needs, as engines that come as files do."""

    VERSION = "1"

    def __init__(self) -> None:
        self.broken: Exception | None = None

    def load(self, request: LoadRequest) -> Loaded:
        own = copy.deepcopy(request.model)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.broken is not None:
                raise self.broken
            return own(*args, **kwargs)

        return Loaded(call=call, frozen_weights=True, needs_model=False)


@pytest.fixture
def files():
    engine = FileEngine()
    registry.register("files", None, engine)
    yield engine
    registry.unregister("files")


def plan_for(model: nn.Module, engine: str, x: torch.Tensor = X, dynamic: Sequence[DynamicDim] = ()) -> Plan:
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    guard = make_guard(model, Call((x,), {}), dynamic=dynamic, shapes=shapes, grad=False)
    candidate = Candidate(settings=Settings(engine=engine, shapes=shapes), label=engine, rationale="test")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Linear"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="it is small",
        entries=(PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast"),),
    )


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()


@pytest.mark.usefixtures("no_grad", "files")
def test_the_weights_are_freed_when_the_user_lets_go_of_the_model():
    model = net()
    expected = model(X)
    weights = [weakref.ref(t) for t in (*model.parameters(), *model.buffers())]
    fast = apply_plan(model, plan_for(model, "files"), keep_model=False)
    fast(X)
    del model
    gc.collect()
    assert [ref() for ref in weights] == [None] * len(weights)
    torch.testing.assert_close(fast(X), expected)
    assert fast.stats().calls == fast.stats().fast == 2


@pytest.mark.usefixtures("no_grad", "files")
def test_with_the_model_kept_they_stay():
    model = net()
    weight = weakref.ref(model[0].weight)
    fast = apply_plan(model, plan_for(model, "files"))
    del model
    gc.collect()
    assert weight() is not None
    assert fast(torch.ones(5, 3)).shape == (5, 3)


@pytest.mark.usefixtures("no_grad")
def test_what_the_plan_does_not_take_says_why_and_what_to_do(files):
    model = net()
    fast = apply_plan(model, plan_for(model, "files"), keep_model=False)
    with pytest.raises(NoFallback, match=r"shape of args\[0\]: 5x3.*dropped.*declared dynamic.*keep_model=True"):
        fast(torch.ones(5, 3))
    with pytest.raises(NoFallback, match="train mode"):
        fast.train()(X)
    fast.eval()
    with torch.enable_grad(), pytest.raises(NoFallback, match=r"gradients enabled.*torch\.no_grad"):
        fast(X)
    files.broken = RuntimeError("out of wings")
    with pytest.raises(NoFallback, match=r"out of wings.*keep_model=True"):
        fast(X)


@pytest.mark.usefixtures("no_grad", "files")
def test_names_and_shapes_are_left_but_there_is_nothing_to_copy_or_refresh():
    model = net()
    fast = apply_plan(model, plan_for(model, "files"), keep_model=False)
    assert {name: tuple(t.shape) for name, t in fast.state_dict().items()} == {
        name: tuple(t.shape) for name, t in model.state_dict().items()
    }
    assert {p.device.type for p in fast.parameters()} == {"meta"}
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    for act in (fast.refresh, lambda: copy.deepcopy(fast), lambda: pickle.dumps(fast)):
        with pytest.raises(NoFallback, match="compile"):
            act()
    assert fast(X).shape == (2, 3)


@pytest.mark.usefixtures("engine")
def test_an_engine_that_runs_the_model_itself_refuses():
    model = net()
    for plan in (plan_for(model, "fake"), plan_for(model, "inductor")):
        with pytest.raises(InputError, match=r"engine runs the model itself.*--engines onnxruntime,openvino,aoti"):
            apply_plan(model, plan, keep_model=False)


@pytest.mark.usefixtures("files")
def test_a_plan_that_keeps_eager_is_stale_or_in_place_refuses():
    import msgspec

    model = net()
    plan = plan_for(model, "files")
    with pytest.raises(InputError, match="keeps the model eager"):
        apply_plan(model, msgspec.structs.replace(plan, entries=()), keep_model=False)
    with pytest.raises(InputError, match="keeps the model eager"):
        attach(
            model, Candidate(settings=Settings(), label="", rationale=""), plan.entries[0].guard, None, keep_model=False
        )
    with pytest.raises(StalePlan):
        apply_plan(nn.Linear(3, 3).eval(), plan, keep_model=False)
    with pytest.raises(InputError, match="choose one"):
        apply_plan(model, plan, keep_model=False, inplace=True)


def test_a_skeleton_keeps_ties_and_leaves_the_model_alone():
    model = net()
    model[2].weight = nn.Parameter(model[0].weight.detach().t().contiguous())
    model.again = model[2].weight
    bones = skeleton(model)
    assert bones[2].weight is bones.again
    assert bones[0].weight.is_meta
    assert not model[0].weight.is_meta
