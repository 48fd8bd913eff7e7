"""Flatten what a model takes or returns so that two runs can be compared leaf by leaf.

In: any nested value. Out: `Flat`: for each path a description of what is there (container type and keys, dtype,
shape, device, plain value) and the tensors. Two values have the same structure exactly when their descriptions are
equal.
Covered: everything `_tree` walks, numpy arrays, Python floats (compared as float32 numbers, not by equality), sparse
and quantized tensors (as dense ones), and tensors inside the attributes of other objects (a Hugging Face cache).
Not covered: plain attributes of such objects, strides.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from compilot._tree import Call, walk

PLAIN = (type(None), bool, int, str, bytes, complex, enum.Enum, torch.dtype, torch.device, torch.Size)


class Flat(NamedTuple):
    """One nested value, flattened."""

    structure: dict[str, str]  # path -> description
    tensors: dict[str, Tensor]  # path -> tensor, detached, sharing memory with the value


def flatten(value: Any, root: str, *, grad: bool = False) -> Flat:
    """Describe a nested value and collect its tensors; with grad, whether a tensor requires grad is part of it."""
    flat = Flat({}, {})
    for path, node, is_leaf in walk(value, root):
        if is_leaf:
            _add_leaf(flat, path, node, grad)
        else:
            flat.structure[path] = _describe_container(node)
    return flat


def flatten_call(call: Call) -> Flat:
    """Describe the arguments of a call."""
    args, kwargs = flatten(call.args, "args"), flatten(call.kwargs, "kwargs")
    return Flat(args.structure | kwargs.structure, args.tensors | kwargs.tensors)


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """The first place where two structures differ, in words; None when they are equal."""
    for path, description in expected.items():
        if path not in found:
            return f"{path} is missing (eager gives {description})"
        if found[path] != description:
            return f"{path} is {found[path]}, eager gives {description}"
    extra = next((path for path in found if path not in expected), None)
    return None if extra is None else f"{extra} is {found[extra]}, eager has nothing there"


def plain(tensor: Tensor) -> Tensor:
    """The tensor's values as an ordinary contiguous tensor on the CPU, with memory of its own."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)


def storage_address(tensor: Tensor) -> int:
    """Address of the memory behind a tensor; 0 where it has none to share."""
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.numel() == 0:
        return 0
    return tensor.untyped_storage().data_ptr()


def same_values(one: Tensor, other: Tensor) -> bool:
    """Bitwise the same numbers, with NaN equal to NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = plain(one), plain(other)
    if torch.equal(one, other):
        return True
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _add_leaf(flat: Flat, path: str, node: Any, grad: bool) -> None:
    if isinstance(node, float):
        flat.structure[path] = "float"
        flat.tensors[path] = torch.tensor(node, dtype=torch.float32)
    elif isinstance(node, np.ndarray) and node.dtype.kind in "biufc":
        flat.structure[path] = f"ndarray {node.dtype}{list(node.shape)}"
        flat.tensors[path] = torch.tensor(node)
    elif isinstance(node, Tensor):
        flat.structure[path] = _describe_tensor(node, grad)
        flat.tensors[path] = node.detach()
    elif isinstance(node, PLAIN):
        flat.structure[path] = f"{type(node).__name__} {node!r}"
    else:
        flat.structure[path] = f"object {type(node).__name__}"
        _add_object(flat, path, node, grad, seen=set())


def _add_object(flat: Flat, path: str, node: Any, grad: bool, seen: set[int]) -> None:
    """Add the tensors that hang on an object's attributes; plain attributes may be anything and are left alone."""
    if id(node) in seen or isinstance(node, type | nn.Module) or not hasattr(node, "__dict__"):
        return
    seen.add(id(node))
    for name, value in vars(node).items():
        for where, part, is_leaf in walk(value, f"{path}.{name}"):
            if isinstance(part, Tensor):
                _add_leaf(flat, where, part, grad)
            elif is_leaf and not isinstance(part, PLAIN):
                _add_object(flat, where, part, grad, seen)


def _describe_container(node: Any) -> str:
    if isinstance(node, Mapping):
        return f"{type(node).__name__} with keys {list(node)!r}"
    size = len(node) if isinstance(node, list | tuple) else len(vars(node))
    return f"{type(node).__name__} of {size}"


def _describe_tensor(tensor: Tensor, grad: bool) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = "" if tensor.layout == torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return (
        f"{dtype}{list(tensor.shape)}{layout} on {tensor.device.type}{' with grad' * (grad and tensor.requires_grad)}"
    )
