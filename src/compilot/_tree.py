"""Nested inputs and outputs: walk them, name their leaves, rebuild them.

In: whatever a model is called with or returns. Out: leaves with python-like paths ("args[0]['x'][1]", "output.logits").
Covered: tensors, lists, tuples, named tuples, dicts and their subclasses (Hugging Face outputs), dataclasses, values.
Not covered: objects of other classes; they count as one opaque leaf.
Shared by both planes, so it imports torch only where a value is already a tensor's.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compilot.errors import InputError
from compilot.records import DimRange, DynamicDim


class Call(NamedTuple):
    """One call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Leaf(NamedTuple):
    path: str
    value: Any


def is_tensor(value: Any) -> bool:
    """True for a torch tensor, without importing torch."""
    return hasattr(value, "dtype") and hasattr(value, "stride") and hasattr(value, "is_contiguous")


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def children(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container as (path suffix, part); None for a leaf."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if _is_namedtuple(value):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, list | tuple):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def walk(value: Any, path: str) -> Iterator[tuple[str, Any, bool]]:
    """Every node below and including value as (path, node, is_leaf), parents first."""
    parts = children(value)
    yield path, value, parts is None
    for suffix, part in parts or ():
        yield from walk(part, path + suffix)


def leaves(value: Any, path: str) -> list[Leaf]:
    """The leaves of a nested value."""
    return [Leaf(where, node) for where, node, is_leaf in walk(value, path) if is_leaf]


def call_nodes(call: Call) -> Iterator[tuple[str, Any, bool]]:
    """Every node of a call's arguments, with paths that start at args[...] or kwargs[...]."""
    for i, value in enumerate(call.args):
        yield from walk(value, f"args[{i}]")
    for key, value in call.kwargs.items():
        yield from walk(value, f"kwargs[{key!r}]")


def call_leaves(call: Call) -> list[Leaf]:
    """The leaves of a call's arguments."""
    return [Leaf(path, node) for path, node, is_leaf in call_nodes(call) if is_leaf]


def output_leaves(output: Any) -> list[Leaf]:
    """The leaves of a model's output; a bare tensor has the path "output"."""
    return leaves(output, "output")


def rebuild(value: Any, fn: Callable[[str, Any], Any], path: str) -> Any:
    """A copy of the structure in which every leaf is fn(path, leaf)."""
    parts = children(value)
    if parts is None:
        return fn(path, value)
    new = [rebuild(part, fn, path + suffix) for suffix, part in parts]
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, new)
    if _is_namedtuple(value):
        return type(value)(*new)
    if isinstance(value, list | tuple):
        return type(value)(new)
    return dataclasses.replace(value, **{f.name: part for f, part in zip(dataclasses.fields(value), new, strict=True)})


def _rebuild_mapping(value: Mapping[Any, Any], parts: Sequence[Any]) -> Any:
    items = dict(zip(value.keys(), parts, strict=True))
    return items if type(value) is dict else type(value)(**items)


def map_call(call: Call, fn: Callable[[str, Any], Any]) -> Call:
    """A copy of the call in which every leaf is fn(path, leaf)."""
    args = tuple(rebuild(value, fn, f"args[{i}]") for i, value in enumerate(call.args))
    return Call(args, {key: rebuild(value, fn, f"kwargs[{key!r}]") for key, value in call.kwargs.items()})


def parameter_names(forward: Callable[..., Any], call: Call) -> dict[str, str]:
    """Root path of each argument -> name of the forward parameter that receives it."""
    names = {f"kwargs[{key!r}]": key for key in call.kwargs}
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    for i in range(len(call.args)):
        named = i < len(positional)
        names[f"args[{i}]"] = positional[i].name if named else f"{star}.{i - len(positional)}"
    return names


def dotted_name(path: str, roots: Mapping[str, str]) -> str:
    """The user's name of a leaf: "args[0]['image']" -> "batch.image"."""
    root = next(r for r in sorted(roots, key=len, reverse=True) if path.startswith(r))
    rest = path[len(root) :].replace("['", ".").replace("']", "").replace("[", ".").replace("]", "")
    return roots[root] + rest


def resolve_dynamic(
    dims: Sequence[DynamicDim], forward: Callable[..., Any], call: Call
) -> dict[str, dict[int, DimRange]]:
    """Declared dynamic dimensions by leaf path; a name or dimension the call does not have is the user's mistake."""
    roots = parameter_names(forward, call)
    tensors = {dotted_name(leaf.path, roots): leaf for leaf in call_leaves(call) if is_tensor(leaf.value)}
    found: dict[str, dict[int, DimRange]] = {}
    for dim in dims:
        leaf = tensors.get(dim.input)
        if leaf is None:
            known = ", ".join(sorted(tensors)) or "none"
            raise InputError(f"dynamic dimension of unknown input '{dim.input}'; the tensor inputs are: {known}.")
        rank = leaf.value.dim()
        if not -rank <= dim.dim < rank:
            raise InputError(f"input '{dim.input}' has {rank} dimensions, so dimension {dim.dim} does not exist.")
        if not 0 <= dim.min <= dim.max:
            raise InputError(f"range {dim.min}..{dim.max} of '{dim.input}' dimension {dim.dim} is empty or negative.")
        found.setdefault(leaf.path, {})[dim.dim % rank] = DimRange(min=dim.min, max=dim.max)
    return found
