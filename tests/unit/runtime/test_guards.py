"""Guards: what is recorded of a call, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from compilot._tree import Call
from compilot.errors import InputError, PlanError
from compilot.inputs.paths import parse
from compilot.records import ANY_SIZE, DimRange, DynamicDim, Guard, Shapes
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher, is_mismatch


class Model(nn.Module):
    def forward(self, x, mask=None, flag=True, **more):
        return x


def guard(*args, dynamic=(), shapes=Shapes.STATIC, **kwargs) -> Guard:
    return make_guard(Model().eval(), Call(args, kwargs), dynamic=dynamic, shapes=shapes, grad=False)


def test_a_tensor_is_recorded_with_dtype_device_shape_and_stride():
    [tensor] = guard(torch.zeros(2, 3, dtype=torch.float64)).tensors
    assert (tensor.path, tensor.dtype, tensor.device) == ("args[0]", "torch.float64", "cpu")
    assert (tensor.shape, tensor.stride) == ((2, 3), (3, 1))


def test_containers_and_values_are_recorded_too():
    made = guard({"a": torch.zeros(1), "b": [1, "s", None]}, flag=False)
    assert [c.path for c in made.containers] == ["args[0]", "args[0]['b']"]
    assert made.containers[0].keys == ("'a'", "'b'")
    assert [(v.path, v.value) for v in made.values] == [
        ("args[0]['b'][0]", "1"),
        ("args[0]['b'][1]", "'s'"),
        ("args[0]['b'][2]", "None"),
        ("kwargs['flag']", "False"),
    ]


def test_declared_dimensions_become_ranges_only_where_shapes_are_dynamic():
    dims = [DynamicDim(input="x", dim=-1, min=1, max=9)]
    [moving] = guard(torch.zeros(2, 3), dynamic=dims, shapes=Shapes.DYNAMIC).tensors
    assert moving.shape == (2, DimRange(min=1, max=9))
    assert moving.stride is None
    [fixed] = guard(torch.zeros(2, 3), dynamic=dims, shapes=Shapes.STATIC).tensors
    assert fixed.shape == (2, 3)


def test_dynamic_shapes_without_a_declaration_leave_every_dimension_free():
    [tensor] = guard(torch.zeros(2, 3), shapes=Shapes.DYNAMIC).tensors
    assert tensor.shape == (ANY_SIZE, ANY_SIZE)


class Cache:
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Cache(), "Cache"),
        (nn.Parameter(torch.zeros(1)), "Parameter"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
    ],
)
def test_what_cannot_be_guarded_is_refused_by_name(value, said):
    with pytest.raises(InputError, match=said):
        guard(value)


def test_a_dynamic_input_must_be_contiguous():
    with pytest.raises(InputError, match="contiguous"):
        guard(torch.zeros(2, 3).t(), dynamic=[DynamicDim(input="x", dim=0, min=1, max=4)], shapes=Shapes.DYNAMIC)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((torch.zeros(3, 3),), "shape of args[0]: 3x3, plan has 2x3"),
        ((torch.zeros(2, 3, 1),), "shape of args[0]: 2x3x1, plan has 2x3"),
        ((torch.zeros(2, 3).double(),), "dtype of args[0]: torch.float64, plan has torch.float32"),
        ((torch.zeros(3, 2).t(),), "strides of args[0]: not laid out as in the plan"),
        ((torch.zeros(2, 3, device="meta"),), "device of args[0]: meta, plan has cpu"),
        ((5,), "type of args[0]: int, plan has a tensor"),
        ((), "other arguments: 0 positional"),
    ],
)
def test_a_mismatch_says_what_is_different(args, said):
    assert Matcher(guard(torch.zeros(2, 3))).call_mismatch(Call(args, {})) == said
    assert is_mismatch(said)


@pytest.mark.parametrize(
    ("example", "other"),
    [({"a": 1}, {"b": 1}), ([1], [1, 2]), (None, torch.zeros(2)), (1, 2)],
)
def test_every_way_in_which_arguments_differ_is_known_as_one(example, other):
    why = Matcher(guard(torch.zeros(2), example)).call_mismatch(Call((torch.zeros(2), other), {}))
    assert why is not None
    assert is_mismatch(why)


@pytest.mark.parametrize("reason", ["engine failed: shape of x", "weights changed", "gradients enabled", ""])
def test_other_reasons_for_a_fallback_are_none(reason):
    assert not is_mismatch(reason)


def test_a_range_is_named_in_the_reason():
    made = guard(torch.zeros(2, 3), dynamic=[DynamicDim(input="x", dim=0, min=1, max=9)], shapes=Shapes.DYNAMIC)
    assert Matcher(made).call_mismatch(Call((torch.zeros(10, 3),), {})) == "shape of args[0]: 10x3, plan has 1..9x3"


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    n: int


def test_dataclasses_and_their_fields_are_compared():
    matcher = Matcher(guard(Batch(torch.zeros(2), 3)))
    assert matcher.call_mismatch(Call((Batch(torch.zeros(2), 3),), {})) is None
    assert matcher.call_mismatch(Call((Batch(torch.zeros(2), 4),), {})) == "value of args[0].n: plan has 3"
    assert is_mismatch("value of args[0].n: plan has 3")
    assert "type of args[0]" in str(matcher.call_mismatch(Call(({"x": torch.zeros(2), "n": 3},), {})))


@pytest.mark.parametrize(
    "text", ["args[0]; import os", "__import__('os')", "args[0][f()]", "args['x']", "kwargs[0]", "args", "", "args[0]."]
)
def test_a_path_from_a_plan_file_is_parsed_and_never_evaluated(text):
    with pytest.raises(PlanError, match="path"):
        parse(text)


@given(st.lists(st.one_of(st.integers(), st.text()), max_size=4))
def test_every_path_that_is_written_can_be_read(keys):
    path = parse("args[0]" + "".join(f"[{key!r}]" for key in keys))
    assert [step.key for step in path.steps] == keys
