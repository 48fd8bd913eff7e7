"""Hooks that come after the model was compiled: the engine would not run them, so eager answers meanwhile."""

from __future__ import annotations

import copy

import pytest
import torch
from file_engine import FileEngine, plan_for
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from compilot.engines import registry
from compilot.engines.protocol import Baked, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import CompilotWarning, NoFallback
from compilot.runtime import Fast
from compilot.runtime import compile as apply_plan
from compilot.runtime.dispatch import HOOKED
from compilot.runtime.notices import advice
from compilot.runtime.weight_watch import INSPECT_EVERY

X = torch.rand(2, 3)
pytestmark = pytest.mark.usefixtures("no_grad")


class Copies:
    TRAITS = EngineTraits(version="1")

    def load(self, request: LoadRequest) -> Loaded:
        return Loaded(call=copy.deepcopy(request.model), frozen_weights=True, baked=Baked.AT_LOAD)


@pytest.fixture(params=[FileEngine, Copies])
def engine_name(request):
    registry.register("hookless", None, request.param())
    yield "hookless"
    registry.unregister("hookless")


@pytest.fixture
def model() -> nn.Module:
    """All weights are positive, as X is: the ReLU lets everything through, so every hook below changes the answer."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 3))).eval()
    for parameter in model.parameters():
        nn.init.uniform_(parameter, 0.5, 1.0)
    return model


@pytest.fixture
def fast(model, engine_name) -> Fast:
    fast = apply_plan(model, plan_for(model, engine_name, X))
    assert torch.equal(fast(X), model(X))
    assert torch.equal(fast(X), model(X))
    return fast


def on_the_root(model: nn.Module):
    return model.register_forward_hook(lambda module, args, out: out + 1)


def on_a_part(model: nn.Module):
    return model[1][1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def on_every_module(model: nn.Module):
    return register_module_forward_pre_hook(lambda module, args: (args[0] + 1,))


@pytest.mark.parametrize("register", [on_the_root, on_a_part, on_every_module])
def test_eager_answers_while_a_later_hook_is_there(fast, model, register):
    plain = model(X)
    handle = register(fast)
    try:
        assert not torch.equal(model(X), plain)
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    finally:
        handle.remove()
    assert fast.stats() == (5, 2, {HOOKED: 3}, 1, (), {}, {})
    assert "remove them" in advice(HOOKED)
    for _ in range(3):
        assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 5


def test_hooks_of_others_cost_one_look_and_nothing_more(fast):
    for _ in range(3):
        nn.Linear(1, 1).register_forward_hook(lambda *args: None)
        torch.ones(1, requires_grad=True).register_hook(lambda grad: grad)
        fast(X)
    assert fast.stats() == (5, 5, {}, 1, (), {}, {})


def test_a_hook_that_was_there_from_the_start_and_goes_is_seen_within_256_calls(model, engine_name):
    handle = on_a_part(model)
    fast = apply_plan(model, plan_for(model, engine_name, X))
    assert torch.equal(fast(X), model(X))
    handle.remove()
    with pytest.warns(CompilotWarning, match="hooks"):
        _ = [fast(X) for _ in range(INSPECT_EVERY + 100)]
    assert torch.equal(fast(X), model(X))


def test_without_the_model_a_hook_is_refused_in_words(model):
    registry.register("hookless", None, FileEngine())
    try:
        fast = apply_plan(model, plan_for(model, "hookless", X), keep_model=False)
    finally:
        registry.unregister("hookless")
    fast(X)
    on_the_root(fast)
    with pytest.raises(NoFallback, match="hooks"):
        fast(X)
