"""The structure of a model's output, told while it is traced.

In: the output and the flat input tensors. Out: a tree of nodes and the distinct tensors in it. Covered: the
containers that `_tree` knows, plain values, dtypes and devices, inputs handed back, tensors that appear twice. Not
covered: objects of other classes (caches, say) and numbers that depend on varying sizes: Infeasible, by path.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from compilot._tree import children
from compilot.engines.protocol import Infeasible
from compilot.engines.structure import Kind, Node
from compilot.modules.naming import importable

_PLAIN: dict[type, Kind] = {list: Kind.LIST, tuple: Kind.TUPLE, torch.Size: Kind.SIZE}


class Described(NamedTuple):
    """The tree, and the tensors that its TENSOR nodes number."""

    tree: Node
    tensors: tuple[torch.Tensor, ...]


def describe(output: Any, inputs: Sequence[torch.Tensor]) -> Described:
    """The tree of an output."""
    given = {id(tensor): i for i, tensor in enumerate(inputs)}
    tensors: dict[int, torch.Tensor] = {}
    tree = _node(output, "output", given, tensors)
    if not tensors:
        raise Infeasible("the output has no tensor in it that the model computes")
    return Described(tree, tuple(tensors.values()))


def _node(value: Any, path: str, given: Mapping[int, int], tensors: dict[int, torch.Tensor]) -> Node:
    if isinstance(value, torch.Tensor):
        return _tensor(value, given, tensors)
    parts = children(value)
    if parts is None:
        return _constant(value, path)
    kind, keys = _container(value)
    kids = tuple(_node(part, path + suffix, given, tensors) for suffix, part in parts)
    named = kind in (Kind.NAMED_TUPLE, Kind.DATACLASS, Kind.MAPPING)
    where = f"{importable(type(value).__module__)}:{type(value).__qualname__}" if named else ""
    return Node(kind=kind, keys=keys, parts=kids, type=where)


def _tensor(value: torch.Tensor, given: Mapping[int, int], tensors: dict[int, torch.Tensor]) -> Node:
    if id(value) in given:
        return Node(kind=Kind.INPUT, index=given[id(value)])
    tensors.setdefault(id(value), value)
    return Node(kind=Kind.TENSOR, index=list(tensors).index(id(value)))


def _container(value: Any) -> tuple[Kind, tuple[str, ...]]:
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain, ()
    if type(value) in (dict, OrderedDict):
        return Kind.DICT if type(value) is dict else Kind.ORDERED_DICT, tuple(repr(key) for key in value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return Kind.MAPPING, tuple(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Kind.NAMED_TUPLE, tuple(value._fields)
    if dataclasses.is_dataclass(value):
        return Kind.DATACLASS, tuple(field.name for field in dataclasses.fields(value))
    raise Infeasible(f"the output has a {type(value).__qualname__} in it, which cannot be rebuilt from a file")


def _constant(value: Any, path: str) -> Node:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise Infeasible(f"{path} is a number that depends on a varying size, not a tensor")
    if isinstance(value, torch.dtype):
        return Node(kind=Kind.CONSTANT, value=str(value), type="dtype")
    if isinstance(value, torch.device):
        return Node(kind=Kind.CONSTANT, value=str(value), type="device")
    if type(value) is float:
        return Node(kind=Kind.CONSTANT, value=repr(value), type="float")
    if value is None or type(value) in (bool, int, str, bytes):
        return Node(kind=Kind.CONSTANT, value=repr(value), type="literal")
    raise Infeasible(f"{path} is a {type(value).__qualname__}, which an exported model cannot return")
