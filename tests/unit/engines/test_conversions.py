"""Half precision on a clone: the user's model, inputs and outputs stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.protocol import Infeasible
from compilot.modules.clone import cast_clone
from compilot.records import Candidate, Guard, MemoryFormat, Precision, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, Any]:
        y = self.norm(self.conv(x))
        return {"y": y, "score": (y.mean(), None), "ids": ids + 1, "inner": y.dtype}


X, IDS = torch.randn(2, 3, 8, 8), torch.arange(4)


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def cast(model: nn.Module, *args: Any, grad: bool = False, **changes: Any) -> Fast:
    guard: Guard = make_guard(model, Call(args, {}), dynamic=(), shapes=Shapes.STATIC, grad=grad)
    candidate = Candidate(settings=Settings(**changes), label="test", rationale="")
    return attach(model, candidate, guard, None)


@pytest.mark.parametrize("layout", list(MemoryFormat))
@pytest.mark.parametrize(("precision", "inner"), [(Precision.BF16, torch.bfloat16), (Precision.FP16, torch.float16)])
def test_it_computes_in_half_and_answers_in_the_models_own_dtypes(model, precision, inner, layout):
    fast = cast(model, X, IDS, precision=precision, memory_format=layout)
    answer, expected = fast(X, IDS), model(X, IDS)
    assert answer["inner"] is inner
    assert answer["y"].dtype is answer["score"][0].dtype is torch.float32
    assert answer["y"].is_contiguous()
    assert torch.equal(answer["ids"], expected["ids"])
    error = (answer["y"] - expected["y"]).square().mean().sqrt() / expected["y"].square().mean().sqrt()
    assert 1e-5 < error < 0.02
    assert fast.stats() == (1, 1, {}, 1, (), {}, {})


def test_the_users_model_keeps_its_weights_and_updates_are_noticed(model):
    before = {name: t.clone() for name, t in model.state_dict().items()}
    fast = cast(model, X, IDS, precision=Precision.BF16)
    fast(X, IDS)
    assert all(t.dtype == before[name].dtype and torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert fast.frozen_weights
    model.load_state_dict({name: t * 2 if t.is_floating_point() else t for name, t in before.items()})
    with pytest.warns(UserWarning, match="weights changed"):
        answer = fast(X, IDS)["y"]
    assert torch.equal(answer, model(X, IDS)["y"])


def test_what_it_cannot_do_is_infeasible_in_words(model):
    with pytest.raises(Infeasible, match="no weights wider than bf16"):
        cast(model.bfloat16(), X.bfloat16(), IDS, precision=Precision.BF16)
    with pytest.raises(Infeasible, match="eager has no int8-dynamic"):
        cast(model.float(), X, IDS, precision=Precision.INT8_DYNAMIC)
    with torch.enable_grad(), pytest.raises(Infeasible, match="for inference"):
        cast(model, X, IDS, grad=True, precision=Precision.BF16)


def test_tied_weights_stay_tied_and_integers_stay_as_they_are():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    clone, copied = cast_clone(model, torch.bfloat16)
    assert copied
    assert clone[0].weight is clone[1].weight
    assert clone[0].weight.dtype is torch.bfloat16
    assert clone[2].num_batches_tracked.dtype is torch.int64
    assert model[0].weight.dtype is torch.float32


def test_a_plan_with_a_precision_that_nobody_knows_cannot_be_read():
    import msgspec

    with pytest.raises(msgspec.ValidationError, match="precision"):
        msgspec.json.decode(b'{"engine": "eager", "precision": "int3"}', type=Settings)
