"""A Fast is the user's model in every respect but the call; the model itself is not changed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime import restore
from compilot.runtime.eager import KEPT_EAGER
from compilot.runtime.fast import Fast, attach, attach_eager, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.sources import EntryParts

X = torch.randn(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3))
        self.config = {"hidden": 3}

    def forward(self, x):
        return self.linear(x) * self.scale

    def generate(self, x, steps):
        for _ in range(steps):
            x = self(x)
        return x


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def fast(make_fast, model) -> Fast:
    return make_fast(model, X)


def picture(model: nn.Module) -> object:
    """Everything one could see of a model from outside."""
    modules = [(name, id(m), type(m), dict(m.__dict__)) for name, m in model.named_modules()]
    plain = [(n, i, t, {k: v for k, v in d.items() if not isinstance(v, dict)}, sorted(d)) for n, i, t, d in modules]
    tensors = [(name, id(t), t._version, t.data_ptr()) for name, t in model.state_dict(keep_vars=True).items()]
    return plain, tensors


@pytest.mark.usefixtures("no_grad")
def test_row_37_the_users_model_is_unchanged(make_fast, model):
    before, answer = picture(model), model(X)
    fast = make_fast(model, X)
    for _ in range(3):
        fast(X)
    assert picture(model) == before
    assert torch.equal(model(X), answer)
    assert type(model) is Net
    assert not isinstance(model, Fast)


def test_it_is_an_instance_of_the_models_own_class(fast):
    assert isinstance(fast, Net)
    assert isinstance(fast, nn.Module)
    assert repr(fast).startswith("FastNet(")


def test_parameters_and_state_have_the_models_own_names_and_objects(fast, model):
    assert [(n, id(p)) for n, p in fast.named_parameters()] == [(n, id(p)) for n, p in model.named_parameters()]
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert [n for n, _ in fast.named_modules()] == [n for n, _ in model.named_modules()]


def test_modes_and_conversions_reach_the_model(fast, model):
    assert fast.train() is fast
    assert model.training
    fast.eval()
    assert not model.training
    assert not model.linear.training
    assert fast.double() is fast
    assert model.linear.weight.dtype is torch.float64
    fast.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    fast.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})
    assert not model.linear.weight.any()


@pytest.mark.usefixtures("no_grad")
def test_other_attributes_and_methods_are_the_models_and_call_the_fast_form(fast, model):
    assert fast.config is model.config
    fast.config = {"hidden": 4}
    assert model.config == {"hidden": 4}
    assert torch.equal(fast.generate(X, 3), model.generate(X, 3))
    assert fast.stats().fast == 3
    with pytest.raises(AttributeError, match="nonsense"):
        _ = fast.nonsense


@pytest.mark.usefixtures("no_grad")
def test_it_can_be_a_part_of_another_module(fast, model):
    whole = nn.Sequential(fast, nn.ReLU()).eval()
    assert torch.equal(whole(X), model(X).relu())
    assert list(whole.state_dict()) == ["0.scale", "0.linear.weight", "0.linear.bias"]
    assert fast.stats().fast == 1


@pytest.mark.usefixtures("no_grad")
def test_hooks_of_the_model_run(fast, model):
    seen = []
    handle = fast.register_forward_hook(lambda module, args, out: seen.append("hook"))
    fast(X)
    fast(X)
    model(X)
    assert seen == ["hook"] * 3
    handle.remove()


@pytest.mark.usefixtures("no_grad")
def test_a_deep_copy_is_fast_and_independent(fast, model):
    other = copy.deepcopy(fast)
    assert isinstance(other, Fast)
    other.linear.weight.zero_()
    assert model.linear.weight.any()
    assert torch.equal(fast(X), model(X))
    assert not torch.equal(other(X), fast(X))
    assert other.stats().fast == 1


@pytest.mark.usefixtures("no_grad")
def test_pickling_brings_the_model_and_its_settings_along(fast, model):
    other = pickle.loads(pickle.dumps(fast))
    assert isinstance(other, Fast)
    assert torch.equal(other(X), model(X))
    assert other.stats().fast == 1


@pytest.mark.usefixtures("no_grad")
def test_in_place_changes_the_class_and_nothing_else(make_fast, model):
    before = picture(model)
    holder = [model]
    fast = make_fast(model, X, inplace=True)
    assert fast is model is holder[0]
    assert isinstance(model, Fast)
    assert type(model).__name__ == "Net"
    expected = Net.forward(model, X)
    assert torch.equal(holder[0](X), expected)
    assert torch.equal(model.generate(X, 2), Net.forward(model, expected))
    assert model.stats().fast == 3
    assert restore(model) is model
    assert type(model) is Net
    assert picture(model) == before


def test_in_place_falls_back_to_the_real_eager(make_fast, model):
    make_fast(model, X, inplace=True)
    out = model(X)
    assert out.requires_grad
    assert model.stats().fallbacks == {"gradients enabled": 1}


def test_compiling_twice_is_the_users_mistake(make_fast, fast):
    with pytest.raises(InputError, match="compiled already"):
        make_fast(fast, X)


def test_keep_eager_is_the_model_counted(model):
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    fast = attach(model, Candidate(settings=Settings(), label="eager", rationale=""), guard, None)
    assert torch.equal(fast(X), model(X))
    assert fast(torch.randn(7, 3)).requires_grad
    assert fast.stats() == (2, 0, {KEPT_EAGER: 2}, 0, (), {}, {})


def test_eager_instead_of_a_plan_counts_as_fallback(model):
    fast = attach_eager(model, "plan out of date")
    fast(X)
    assert fast.stats() == (1, 0, {"plan out of date": 1}, 0, (), {}, {})
    assert pickle.loads(pickle.dumps(fast))(X).shape == (2, 3)


def test_plans_of_a_later_version_are_refused(model):
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="inductor"), label="", rationale="")
    with pytest.raises(InputError, match=r"an entry for a part of the model, linear, .* version of compilot"):
        attach_parts(model, (EntryParts(candidate, guard, None, module="linear"),))


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("make", [torch.fx.symbolic_trace, lambda m: nn.Sequential(m, nn.ReLU())])
def test_models_of_torchs_own_classes(make_fast, model, make):
    made = make(model)
    fast = make_fast(made, X)
    assert torch.equal(fast(X), made(X))
    assert fast.stats().fast == 1
