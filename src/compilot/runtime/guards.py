"""Guards: which calls a callable takes.

In: an example call and what may vary. Out: a Guard record, every leaf and container of the call in it.
Covered: dense plain tensors, plain values baked by repr, the make-up of lists, tuples, dicts and dataclasses.
Not covered: tensor subclasses, sparse tensors and stateful objects among the inputs: those are refused by name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import nn

from compilot._torch.tensor_guards import any_autocast
from compilot._tree import Call, call_nodes, resolve_dynamic
from compilot.errors import InputError
from compilot.records import (
    ANY_SIZE,
    ContainerGuard,
    DimRange,
    DynamicDim,
    Guard,
    IndexFacts,
    IndexRange,
    Shapes,
    TensorGuard,
    ValueGuard,
)

_BAKED = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, enum.Enum)


def make_guard(
    model: nn.Module,
    call: Call,
    *,
    dynamic: Sequence[DynamicDim],
    shapes: Shapes,
    grad: bool,
    indices: Mapping[str, IndexRange] | None = None,
    objects: bool = False,
) -> Guard:
    """The guard that takes this call, and with dynamic shapes the declared sizes around it.

    indices: by path, the values of inputs that keep every index in range. objects: others than tensors and plain values
    are taken by their class alone; whoever runs the call looks into them.
    """
    ranges = resolve_dynamic(dynamic, model.forward, call)
    everything = shapes is Shapes.DYNAMIC and not dynamic
    tensors, values, containers = [], [], []
    for path, node, is_leaf in call_nodes(call):
        if isinstance(node, torch.Tensor):
            varying = _varying(node, ranges.get(path, {}), shapes, everything)
            tensors.append(_tensor_guard(path, node, varying, (indices or {}).get(path)))
        elif is_leaf:
            values.append(_value_guard(path, node, objects=objects))
        else:
            containers.append(_container_guard(path, node))
    return Guard(
        positional=len(call.args),
        keywords=tuple(call.kwargs),
        tensors=tuple(tensors),
        values=tuple(values),
        containers=tuple(containers),
        grad_enabled=grad,
        autocast=any_autocast(),
        training=model.training,
        default_dtype=str(torch.get_default_dtype()),
    )


def in_range(facts: IndexFacts, shapes: Shapes) -> Mapping[str, IndexRange]:
    """The ranges that hold at the sizes which a guard of these shapes takes."""
    return facts.at_all_sizes if shapes is Shapes.DYNAMIC else facts.ranges


def without_indices(guard: Guard) -> Guard:
    """The guard without its look at the values of indices."""
    tensors = tuple(msgspec.structs.replace(tensor, index=None) for tensor in guard.tensors)
    return msgspec.structs.replace(guard, tensors=tensors)


def _varying(
    tensor: torch.Tensor, declared: Mapping[int, DimRange], shapes: Shapes, everything: bool
) -> Mapping[int, DimRange]:
    if everything:
        return dict.fromkeys(range(tensor.dim()), ANY_SIZE)
    return declared if shapes is Shapes.DYNAMIC else {}


def _tensor_guard(
    path: str, tensor: torch.Tensor, varying: Mapping[int, DimRange], index: IndexRange | None
) -> TensorGuard:
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        kind = type(tensor).__name__ if tensor.layout is torch.strided else str(tensor.layout)
        raise InputError(f"input {path} is a {kind}; compilot guards plain dense tensors only: convert it first.")
    if varying and not tensor.is_contiguous():
        raise InputError(f"input {path} has a dynamic dimension and is not contiguous; call .contiguous() on it first.")
    return TensorGuard(
        path=path,
        dtype=str(tensor.dtype),
        device=str(tensor.device),
        shape=tuple(varying.get(dim, size) for dim, size in enumerate(tensor.shape)),
        stride=None if varying else tuple(tensor.stride()),
        requires_grad=tensor.requires_grad,
        index=index,
    )


def _value_guard(path: str, value: Any, *, objects: bool) -> ValueGuard:
    if not isinstance(value, _BAKED):
        if objects:
            return ValueGuard(path=path, type=type_name(value), value="")
        kind = type(value).__qualname__
        raise InputError(f"input {path} is a {kind}, which may change between calls: give tensors and plain values.")
    return ValueGuard(path=path, type=type_name(value), value=repr(value))


def _container_guard(path: str, node: Any) -> ContainerGuard:
    keys = tuple(repr(key) for key in node) if isinstance(node, Mapping) else None
    length = len(node) if isinstance(node, list | tuple) else None
    return ContainerGuard(path=path, type=type_name(node), keys=keys, length=length)


def type_name(value: Any) -> str:
    """Name of a value's class: bare for builtins, qualified otherwise."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
