"""Calls that only look like the planned one, past an open hot path: eager's answer and a counted reason."""

from __future__ import annotations

import warnings

import pytest
import torch
from file_engine import FileEngine, plan_for
from torch import nn
from torch.autograd import forward_ad

from compilot._torch.tensor_guards import python_check
from compilot.engines import registry
from compilot.records import DynamicDim
from compilot.runtime import compile as apply_plan

X = torch.randn(2, 3)
pytestmark = [
    pytest.mark.usefixtures("no_grad"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]


@pytest.fixture(params=[(), (DynamicDim(input="input", dim=0, min=1, max=8),)], ids=["static", "dynamic"])
def pair(request):
    """A model and its fast form behind an engine that never calls it, the hot path open."""
    registry.register("files", None, FileEngine())
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    fast = apply_plan(model, plan_for(model, "files", X, request.param))
    registry.unregister("files")
    assert torch.equal(fast(X), fast(X))
    return model, fast


def through_nested(run):
    return run(torch.nested.nested_tensor([X[0:1], X])).to_padded_tensor(0.0)


def through_zeros(run):
    return run(torch._efficientzerotensor(X.shape))


def through_vmap(run):
    return torch.vmap(run)(torch.stack([X, X + 1]))


def through_dual(run):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(run(forward_ad.make_dual(X, torch.ones_like(X)))).tangent


def through_trace(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(run, (X,), check_trace=False)(X + 1)


ODD = {
    through_nested: "nested tensor",
    through_zeros: "zeros without memory",
    through_vmap: "torch.func",
    through_dual: "forward-mode differentiation",
    through_trace: "torch.jit tracing",
}


@pytest.mark.parametrize("call", ODD)
def test_eager_answers_and_the_engine_stays_on(pair, call):
    model, fast = pair
    for _ in range(5):  # more often than an engine may fail
        torch.testing.assert_close(call(fast), call(model))
    [reason] = fast.stats().fallbacks
    assert ODD[call] in reason
    served = fast.stats().fast
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == served + 1


def test_the_check_in_plain_python_refuses_them_too():
    check = python_check([X])
    assert check(X + 1)
    assert not check(torch.nested.nested_tensor([X[0:1], X]))
    assert not check(torch._efficientzerotensor(X.shape))
    seen = []
    torch.vmap(lambda x: seen.append(check(x)) or x)(torch.stack([X, X]))
    with forward_ad.dual_level():
        seen.append(check(X))
    assert seen == [False, False]
