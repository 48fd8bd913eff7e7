"""Grad mode where there are no weights: it means something only for inputs that want gradients themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.records import Shapes
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher

X = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("wants", "grad", "training", "mismatch"),
    [
        (False, True, False, None),
        (True, True, False, "gradients enabled"),
        (True, False, False, None),
        (False, True, True, "train mode"),
    ],
)
def test_gradients_enabled_matter_where_an_input_wants_them(
    wants: bool, grad: bool, training: bool, mismatch: str | None
) -> None:
    guard = make_guard(nn.ReLU().eval(), Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    call = Call((X.clone().requires_grad_(wants),), {})
    with torch.set_grad_enabled(grad):
        assert Matcher(guard).mode_mismatch_without_weights(training, call) == mismatch
        assert torch.is_grad_enabled() is grad


def test_a_plan_made_with_gradients_wants_them() -> None:
    guard = make_guard(nn.ReLU().eval(), Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
    with torch.no_grad():
        assert Matcher(guard).mode_mismatch_without_weights(False, Call((X,), {})) == "gradients disabled"


@pytest.mark.usefixtures("no_grad")
def test_a_frozen_call_of_keywords_alone_is_served_and_watched(engine, make_fast) -> None:
    engine.frozen = True
    model = nn.Linear(3, 3).eval()
    fast = make_fast(model, input=X)
    for _ in range(3):
        assert torch.equal(fast(input=X), model(X))
    assert fast.stats() == (3, 3, {}, 1, (), {}, {})
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    with pytest.warns(UserWarning, match="weights changed"):
        assert torch.equal(fast(input=X), model(X))
