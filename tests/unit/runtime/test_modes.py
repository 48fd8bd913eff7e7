"""Modes of the thread, the model and the tensors: the right variant or eager, never wrong numbers."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

from compilot._torch.tensor_guards import python_check, tensor_check


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.linear(x)).relu()


X = torch.randn(2, 3)


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(2, 3)


def test_row_20_gradients_enabled_goes_to_eager_and_keeps_the_graph(make_fast):
    fast = make_fast(net(), X)
    out = fast(X)
    assert out.requires_grad
    assert fast.stats().fallbacks == {"gradients enabled": 1}


def test_row_20_a_plan_made_with_gradients_takes_only_those_calls(make_fast):
    fast = make_fast(net(), X, grad=True)
    assert fast(X).requires_grad
    with torch.no_grad():
        assert not fast(X).requires_grad
    assert fast.stats().fallbacks == {"gradients disabled": 1}


def test_row_20_autocast_goes_to_eager_and_gives_its_dtype(make_fast):
    fast = make_fast(net(), X)
    with torch.no_grad():
        fast(X)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert fast(X).dtype is torch.bfloat16
        assert fast(X).dtype is torch.float32
    assert fast.stats().fallbacks == {"autocast": 1}


def test_row_20_train_mode_goes_to_eager_whoever_switches_it(make_fast):
    model = net()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        model.train()
        fast(X)
        fast.eval()
        fast(X)
    assert fast.stats().fallbacks == {"train mode": 1}
    assert fast.stats().fast == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_row_20_the_mode_used_first_is_the_hot_one(make_fast, engine, mode):
    fast = make_fast(net(), X)
    with mode():
        for _ in range(5):
            fast(X)
    assert fast.stats().fast == 5
    assert engine.calls == 4
    assert len(engine.prepared) == 1


def test_row_20_inference_mode_and_inference_tensors_are_variants_prepared_once(make_fast, engine):
    model = net()
    fast = make_fast(model, X)
    other = inference_tensor()
    cases = [(torch.no_grad, X), (torch.inference_mode, X), (torch.inference_mode, other), (torch.no_grad, other)]
    for _ in range(3):
        for mode, x in cases:
            with mode():
                assert torch.equal(fast(x), model(x))
    assert len(engine.prepared) == len(cases)
    assert fast.stats().fast_share == 1.0
    assert fast.stats().compiles == len(cases)


def test_row_20_requires_grad_of_an_input_is_a_variant_without_gradients(make_fast, engine):
    fast = make_fast(net(), X)
    with torch.no_grad():
        fast(X)
        fast(X.clone().requires_grad_())
    assert len(engine.prepared) == 2


def test_row_20_a_dtype_that_eager_takes_goes_to_eager(make_fast):
    model = nn.ReLU().eval()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        assert torch.equal(fast(X.double()), X.double().relu())
    assert fast.stats().fast == 1
    assert fast.stats().fallbacks == {"dtype of args[0]: torch.float64, plan has torch.float32": 1}


def test_row_20_a_dtype_that_eager_refuses_is_refused_in_eagers_words(make_fast):
    model = net()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        with pytest.raises(RuntimeError) as own:
            model(X.double())
        with pytest.raises(RuntimeError) as ours:
            fast(X.double())
    assert str(ours.value) == str(own.value)
    assert fast.stats().fast == 1


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.randn(3, 2).t(), "strides of args[0]: not laid out as in the plan"),
        (torch._neg_view(X), "lazy conjugate or negative view at args[0]"),
        (nn.Parameter(X), "type of args[0]: torch.nn.parameter.Parameter, plan has a tensor"),
    ],
)
def test_row_20_other_tensors_go_to_eager(make_fast, x, reason):
    model = net()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        assert torch.equal(fast(x), model(x))
    assert fast.stats().fast == 1
    assert fast.stats().fallbacks == {reason: 1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-42])
def test_row_21_special_values_take_the_fast_path_and_come_out_as_from_eager(make_fast, value):
    model = net()
    fast = make_fast(model, X)
    x = X.clone()
    x[0, 0] = value
    with torch.no_grad():
        fast(X)
        torch.testing.assert_close(fast(x), model(x), rtol=0, atol=0, equal_nan=True)
    assert fast.stats().fast_share == 1.0


def test_row_38_results_that_are_kept_do_not_change(make_fast):
    fast = make_fast(net(), X)
    with torch.no_grad():
        kept = [fast(X + i) for i in range(4)]
        copies = [t.clone() for t in kept]
        for i in range(4):
            fast(X - i)
    assert all(map(torch.equal, kept, copies))


def test_an_input_changed_in_place_is_changed_once_by_the_first_call(make_fast):
    class InPlace(nn.Module):
        def forward(self, x):
            return x.add_(1)

    fast = make_fast(InPlace().eval(), torch.zeros(3))
    x = torch.zeros(3)
    with torch.no_grad():
        fast(x)
    assert torch.equal(x, torch.ones(3))


PROBES = {
    "same": lambda: X.clone(),
    "dtype": lambda: X.double(),
    "shape": lambda: torch.randn(3, 3),
    "rank": lambda: torch.randn(2, 3, 1),
    "stride": lambda: torch.randn(3, 2).t(),
    "requires_grad": lambda: X.clone().requires_grad_(),
    "parameter": lambda: nn.Parameter(X),
    "inference tensor": inference_tensor,
    "negative view": lambda: torch._neg_view(X),
    "sparse": lambda: X.to_sparse(),
    "not a tensor": lambda: 3,
}
MODES = {"none": contextlib.nullcontext, "inference": torch.inference_mode, "autocast": lambda: torch.autocast("cpu")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("probe", PROBES)
def test_the_check_in_cpp_and_the_one_in_python_agree(mode, probe):
    checks = [make([X]) for make in (tensor_check, python_check)]
    value = PROBES[probe]()
    with MODES[mode]():
        found = [check(value) for check in checks]
    assert found == [probe == "same" and mode == "none"] * 2
