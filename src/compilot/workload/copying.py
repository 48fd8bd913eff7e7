"""Copies that a unit of work can write into. In: a call, an answer or a model. Out: the same with memory of its own.

Covered: nested values, shared and expanded tensors, opaque objects (deep-copied), a conversion of every tensor on the
way (to double precision). Not covered: objects that hold tensors within a gradient graph; those cannot be copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from compilot._tree import Call, leaves

Convert = Callable[[Tensor], Tensor]


def copy_call(call: Call, convert: Convert | None = None) -> Call:
    """A deep copy of a call; tensors keep their strides and go through `convert` where it is given."""
    return Call(*copy_nested((tuple(call.args), dict(call.kwargs)), convert))


def copy_nested(value: Any, convert: Convert | None = None) -> Any:
    """A deep copy of what a model takes or returns, its tensors as in copy_call."""
    memo: dict[int, Any] = {}
    for leaf in leaves(value, ""):
        if isinstance(leaf.value, Tensor) and id(leaf.value) not in memo:
            memo[id(leaf.value)] = _copy_tensor(leaf.value, convert, memo)
    return copy.deepcopy(value, memo)


def copy_model(model: nn.Module, convert: Convert) -> nn.Module:
    """A deep copy of a model whose parameters, buffers and tensor attributes went through `convert`."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(convert(parameter.detach()).clone(), requires_grad=parameter.requires_grad)
    plain_tensors = (value for module in model.modules() for value in vars(module).values())
    for tensor in [*model.buffers(), *(value for value in plain_tensors if isinstance(value, Tensor))]:
        memo.setdefault(id(tensor), convert(tensor.detach()).clone())
    return copy.deepcopy(model, memo)


def to_double(tensor: Tensor) -> Tensor:
    """Floating and complex tensors in double precision; others as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _copy_tensor(tensor: Tensor, convert: Convert | None, memo: dict[int, Any]) -> Tensor:
    detached = tensor.detach()
    # clone() would give an expanded or sliced tensor other strides; deepcopy copies the storage and keeps the view
    dense = detached.layout != torch.strided or detached.clone().stride() == detached.stride()
    new = detached.clone() if dense else copy.deepcopy(detached, memo)
    if convert is not None:
        new = convert(new)
    return new.requires_grad_(tensor.requires_grad)
