"""Declared dynamic dimensions: from the user's spelling to records.

In: `{"input_ids": {1: (1, 512)}}`, a sequence of DynamicDim, or "input_ids:1=1..512" from the command line. Shorthands
for all inputs: `{"batch": (1, 8)}` or "batch=1..8" is dimension 0, "seq=4..128" is dimension 1.
Out: DynamicDim records, one per input and dimension. A shorthand has the input `EVERY` until `spelled_out` sees a call.
Not covered: whether the call has such an input (`_tree.resolve_dynamic`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from compilot._tree import Call, call_leaves, dotted_name, is_tensor, parameter_names
from compilot.errors import InputError
from compilot.records import DynamicDim

DynamicSpec = Mapping[str, Mapping[int, tuple[int, int]] | tuple[int, int]] | Sequence[DynamicDim]

EVERY = "*"  # every tensor input that has the first one's size at the dimension; sorts before all names
SHORTHANDS = {"batch": 0, "seq": 1}  # what people call a dimension that all inputs share

_SPELLING = re.compile(r"(?P<input>[^:=]+):(?P<dim>-?\d+)=(?P<min>\d+)\.\.(?P<max>\d+)")
_SHORT = re.compile(rf"(?P<name>{'|'.join(SHORTHANDS)})=(?P<min>\d+)\.\.(?P<max>\d+)")


def parse_dynamic(text: str) -> DynamicDim:
    """The record of one dimension as it is spelled on the command line."""
    short = _SHORT.fullmatch(text.strip())
    if short is not None:
        return DynamicDim(input=EVERY, dim=SHORTHANDS[short["name"]], min=int(short["min"]), max=int(short["max"]))
    match = _SPELLING.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"cannot read the dynamic dimension '{text}'; write NAME:DIM=MIN..MAX, such as input_ids:1=1..512, "
            "or batch=1..8 or seq=4..128 for all inputs."
        )
    dim, low, high = int(match["dim"]), int(match["min"]), int(match["max"])
    return DynamicDim(input=match["input"].strip(), dim=dim, min=low, max=high)


def as_dims(spec: DynamicSpec | None) -> tuple[DynamicDim, ...]:
    """The records of a declaration made in Python."""
    if spec is None:
        return ()
    if not isinstance(spec, Mapping):
        return merge((), spec)
    short = {name: dims for name, dims in spec.items() if name in SHORTHANDS and not isinstance(dims, Mapping)}
    full = [_dim(n, dim, sizes) for n, dims in spec.items() if n not in short for dim, sizes in _items(n, dims)]
    return merge([_every(name, sizes) for name, sizes in short.items()], full)


def merge(old: Sequence[DynamicDim], new: Sequence[DynamicDim]) -> tuple[DynamicDim, ...]:
    """Old and new declarations; where both speak of the same dimension the new one counts, or widens the old one."""
    by_place: dict[tuple[str, int], DynamicDim] = {}
    for dim in [*old, *new]:
        place = dim.input, dim.dim
        by_place[place] = _widened(dim, by_place.get(place, dim)) if dim.widens else dim
    return tuple(by_place[place] for place in sorted(by_place))


def _widened(dim: DynamicDim, before: DynamicDim) -> DynamicDim:
    return msgspec.structs.replace(dim, min=min(dim.min, before.min), max=max(dim.max, before.max))


def settled(dims: Sequence[DynamicDim]) -> tuple[DynamicDim, ...]:
    """Ranges that nothing widens any more."""
    return tuple(msgspec.structs.replace(dim, widens=False) for dim in dims)


def spelled_out(dims: Sequence[DynamicDim], forward: Callable[..., Any], call: Call) -> tuple[DynamicDim, ...]:
    """The same with whole names for shorthands and ends of names; of two for one dimension the later counts."""
    roots = parameter_names(forward, call)
    shapes = {dotted_name(leaf.path, roots): leaf.value.shape for leaf in call_leaves(call) if is_tensor(leaf.value)}
    named = [
        msgspec.structs.replace(_with_example(dim, shapes.get(name)), input=name)
        for dim in dims
        for name in (_sharing(dim, shapes) if dim.input == EVERY else [_whole(dim.input, shapes)])
    ]
    return merge((), named)


def _with_example(dim: DynamicDim, shape: Sequence[int] | None) -> DynamicDim:
    """One that widens reaches the example's size, too."""
    if not dim.widens or shape is None:
        return dim
    size = shape[dim.dim]
    return msgspec.structs.replace(dim, min=min(dim.min, size), max=max(dim.max, size))


def _sharing(dim: DynamicDim, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """The inputs that a shorthand means: those with the size of the first that has such a dimension."""
    sizes = {name: shape[dim.dim] for name, shape in shapes.items() if -len(shape) <= dim.dim < len(shape)}
    if not sizes:
        raise InputError(f"no tensor input has a dimension {dim.dim}; name the input and dimension: NAME:DIM=MIN..MAX.")
    first = next(iter(sizes.values()))
    return [name for name, size in sizes.items() if size == first]


def _whole(name: str, known: Mapping[str, Any]) -> str:
    """The whole name of an input from its end ("image" of "batch.image"); an unknown name stays as it is."""
    meant = [name] if name in known else [each for each in known if each.endswith(f".{name}")]
    if len(meant) > 1:
        raise InputError(f"input '{name}' may be {' or '.join(meant)}; write the whole name.")
    return meant[0] if meant else name


def _items(name: str, dims: Any) -> list[tuple[Any, Any]]:
    if not isinstance(dims, Mapping):
        raise InputError(f"dynamic['{name}'] must map dimensions to ranges, such as {{1: (1, 512)}}; got {dims!r}.")
    return list(dims.items())


def _every(name: str, sizes: Any) -> DynamicDim:
    pair = _pair(sizes)
    if pair is None:
        raise InputError(f"dynamic['{name}'] is {sizes!r}; give the smallest and largest size, such as (1, 8).")
    return DynamicDim(input=EVERY, dim=SHORTHANDS[name], min=pair[0], max=pair[1])


def _dim(name: str, dim: Any, sizes: Any) -> DynamicDim:
    pair = _pair(sizes)
    if pair is None or not _is_whole(dim):
        raise InputError(
            f"dynamic['{name}'][{dim!r}] is {sizes!r}; give the smallest and largest size, such as {{1: (1, 512)}}."
        )
    return DynamicDim(input=name, dim=dim, min=pair[0], max=pair[1])


def _pair(sizes: Any) -> tuple[int, int] | None:
    """The smallest and the largest size; None for what is no such pair."""
    if not isinstance(sizes, tuple | list) or len(sizes) != 2 or not all(map(_is_whole, sizes)):
        return None
    return sizes[0], sizes[1]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
