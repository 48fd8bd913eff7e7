"""The hot path: which calls take it, in whatever form they are written, and which do not."""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

from compilot.records import DynamicDim

pytestmark = pytest.mark.usefixtures("no_grad")


class Scale(nn.Module):
    def forward(self, x, scale=2.0, *, bias=None, flag=True):
        out = x * scale if flag else x
        return out if bias is None else out + bias


class Nested(nn.Module):
    def forward(self, batch, n=1):
        return batch["x"] * n + batch["more"][0]


X = torch.arange(6.0).reshape(2, 3)
B = torch.ones(3)


@pytest.mark.parametrize(
    "written",
    [
        lambda f: f(X, bias=B),
        lambda f: f(x=X, bias=B),
        lambda f: f(bias=B, x=X),
        lambda f: f(X, 2.0, bias=B),
        lambda f: f(X, scale=2.0, bias=B, flag=True),
    ],
)
def test_the_same_call_in_another_form_is_still_fast(make_fast, engine, written):
    fast = make_fast(Scale().eval(), X, bias=B)
    for _ in range(3):
        assert torch.equal(written(fast), X * 2 + 1)
    assert fast.stats().fast == 3
    assert len(engine.prepared) == 1


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        (lambda f: f(X, 3.0, bias=B), X * 3 + 1),
        (lambda f: f(X), X * 2),
        (lambda f: f(X, bias=B, flag=False), X + 1),
        (lambda f: f(X, bias=None), X * 2),
    ],
)
def test_another_call_is_answered_by_eager(make_fast, written, answer):
    fast = make_fast(Scale().eval(), X, bias=B)
    fast(X, bias=B)
    assert torch.equal(written(fast), answer)
    assert fast.stats().fast == 1
    assert sum(fast.stats().fallbacks.values()) == 1


def test_a_call_that_eager_refuses_raises_eagers_own_error(make_fast):
    fast = make_fast(Scale().eval(), X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        fast(X, nonsense=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fast()


def batch(**changes):
    return {"x": X, "more": [torch.ones(3)], **changes}


def test_nested_inputs_take_the_hot_path(make_fast):
    fast = make_fast(Nested().eval(), batch(), n=2)
    for _ in range(3):
        assert torch.equal(fast(batch(), n=2), X * 2 + 1)
    assert fast.stats().fast_share == 1.0


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda f: f(batch(more=[torch.ones(3), torch.ones(3)]), n=2), "length of args[0]['more']: 2, plan has 1"),
        (lambda f: f(batch(more=(torch.ones(3),)), n=2), "type of args[0]['more']: tuple, plan has list"),
        (lambda f: f(batch(extra=1), n=2), "keys of args[0]"),
        (lambda f: f({"more": [torch.ones(3)], "x": X}, n=2), "keys of args[0]"),
        (lambda f: f(collections.OrderedDict(batch()), n=2), "type of args[0]: collections.OrderedDict, plan has dict"),
        (lambda f: f(batch(), n=3), "value of kwargs['n']: plan has 2"),
        (lambda f: f(batch(), n=True), "type of kwargs['n']: bool, plan has int"),
        (lambda f: f(batch(x=X.double()), n=2), "dtype of args[0]['x']: torch.float64, plan has torch.float32"),
    ],
)
def test_a_different_nested_input_goes_to_eager_with_its_reason(make_fast, call, reason):
    model = Nested().eval()
    fast = make_fast(model, batch(), n=2)
    fast(batch(), n=2)
    assert torch.equal(call(fast), call(model))
    assert fast.stats().fallbacks == {reason: 1}


def test_a_keyword_that_is_no_identifier_still_works(make_fast):
    class Open(nn.Module):
        def forward(self, **inputs):
            return inputs["pixel values"] * 2

    fast = make_fast(Open().eval(), **{"pixel values": X})
    for _ in range(2):
        assert torch.equal(fast(**{"pixel values": X}), X * 2)
    assert fast.stats().fast == 2


def test_keywords_may_have_the_names_of_builtins(make_fast):
    class Odd(nn.Module):
        def forward(self, type, len=None):  # noqa: A002
            return type + len

    fast = make_fast(Odd().eval(), type=X, len=B)
    assert torch.equal(fast(type=X, len=B), X + 1)
    assert fast.stats().fast == 1


def test_a_float_argument_is_told_apart_by_its_sign(make_fast):
    class Sign(nn.Module):
        def forward(self, x, s):
            return torch.copysign(x, torch.tensor(s))

    model = Sign().eval()
    fast = make_fast(model, X, 0.0)
    assert torch.equal(fast(X, 0.0), X)
    assert torch.equal(fast(X, -0.0), model(X, -0.0))
    assert fast.stats().fast == 1


@pytest.mark.parametrize("dynamic", [(), (DynamicDim(input="x", dim=0, min=0, max=64),)], ids=["static", "dynamic"])
def test_a_stride_that_means_nothing_does_not_matter(make_fast, engine, dynamic):
    fast = make_fast(Scale().eval(), torch.zeros(1, 3), dynamic=dynamic)
    odd = torch.arange(12.0).reshape(4, 3).t()[:1].t().reshape(1, 4)[:, :3].as_strided((1, 3), (77, 1))
    assert odd.stride() == (77, 1)
    for calls in (1, 2, 3):  # the engine gets the plan's strides, also once the hot path is open
        assert torch.equal(fast(odd), odd * 2)
        assert fast.stats().fast == calls
    assert engine.prepared[0].args[0].stride() == (3, 1)
    assert engine.strides == {(3, 1)}


def test_no_tensor_inputs_at_all(make_fast):
    class Constant(nn.Module):
        def forward(self, n):
            return torch.full((n,), 1.0)

    fast = make_fast(Constant().eval(), 3)
    assert fast(3).sum() == 3
    assert fast(4).sum() == 4
    with torch.autocast("cpu"):
        fast(3)
    assert fast.stats().fallbacks == {"value of args[0]: plan has 3": 1, "autocast": 1}


DYNAMIC = [DynamicDim(input="x", dim=0, min=0, max=64)]


def test_declared_sizes_stay_on_the_fast_path_with_few_preparations(make_fast, engine):
    fast = make_fast(Scale().eval(), X, dynamic=DYNAMIC)
    for _ in range(3):
        for n in range(2, 65):
            x = torch.randn(n, 3)
            assert torch.equal(fast(x), x * 2)
    assert fast.stats().fast_share == 1.0
    assert len(engine.prepared) == 63  # a new size may need a new program: it is shown to the engine once
    assert fast.stats().compiles == 1  # and this engine needed none


def test_row_19_sizes_zero_and_one_and_too_large_get_the_right_answer(make_fast, engine):
    fast = make_fast(Scale().eval(), X, dynamic=DYNAMIC)
    for n in (2, 1, 0, 5, 1, 0, 64):
        x = torch.randn(n, 3)
        assert torch.equal(fast(x), x * 2)
    assert fast.stats().compiles == 3  # many, one, none: compilers treat the last two on their own
    assert len(engine.prepared) == 5
    assert fast.stats().fast_share == 1.0
    big = torch.randn(65, 3)
    assert torch.equal(fast(big), big * 2)
    assert fast.stats().fallbacks == {"shape of args[0]: 65x3, plan has 0..64x3": 1}


def test_a_dynamic_input_that_is_not_contiguous_goes_to_eager(make_fast):
    fast = make_fast(Scale().eval(), X, dynamic=DYNAMIC)
    fast(X)
    assert torch.equal(fast(torch.zeros(3, 5).t()), torch.zeros(5, 3))
    assert fast.stats().fallbacks == {"strides of args[0]: not laid out as in the plan": 1}


def test_each_prepared_shape_is_known_with_the_shapes_of_the_other_inputs(make_fast, engine):
    class Sum(nn.Module):
        def forward(self, x, y):
            return x.sum() + y.sum()

    both = [DynamicDim(input=name, dim=1, min=1, max=64) for name in ("x", "y")]
    fast = make_fast(Sum().eval(), X, X + 1, dynamic=both)
    sizes = [(3, 3), (3, 5), (5, 3), (5, 5)]
    for n, m in sizes * 2:
        assert fast(torch.ones(2, n), torch.ones(2, m)) == 2 * (n + m)
    assert [tuple(t.shape[1] for t in call.args) for call in engine.prepared] == sizes
    assert fast.stats().fast_share == 1.0
    assert fast(torch.ones(2, 3), torch.ones(5, 2).t()) == 16
    assert fast.stats().fallbacks == {"strides of args[1]: not laid out as in the plan": 1}


def test_row_19_empty_batch_for_a_static_plan(make_fast):
    fast = make_fast(Scale().eval(), X)
    fast(X)
    assert fast(torch.zeros(0, 3)).shape == (0, 3)
    assert fast.stats().fallbacks == {"shape of args[0]: 0x3, plan has 2x3": 1}
