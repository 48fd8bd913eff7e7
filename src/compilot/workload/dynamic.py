"""Declared dynamic dimensions: from the user's spelling to records.

In: `{"input_ids": {1: (1, 512)}}`, a sequence of DynamicDim, or "input_ids:1=1..512" from the command line.
Out: DynamicDim records, sorted, one per input and dimension.
Not covered: whether the call has such an input (`_tree.resolve_dynamic`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from compilot.errors import InputError
from compilot.records import DynamicDim

DynamicSpec = Mapping[str, Mapping[int, tuple[int, int]]] | Sequence[DynamicDim]

_SPELLING = re.compile(r"(?P<input>[^:=]+):(?P<dim>-?\d+)=(?P<min>\d+)\.\.(?P<max>\d+)")


def parse_dynamic(text: str) -> DynamicDim:
    """The record of one --dynamic option."""
    match = _SPELLING.fullmatch(text.strip())
    if match is None:
        raise InputError(f"cannot read --dynamic '{text}'; write NAME:DIM=MIN..MAX, such as input_ids:1=1..512.")
    dim, low, high = int(match["dim"]), int(match["min"]), int(match["max"])
    return DynamicDim(input=match["input"].strip(), dim=dim, min=low, max=high)


def as_dims(spec: DynamicSpec | None) -> tuple[DynamicDim, ...]:
    """The records of a declaration made in Python."""
    if spec is None:
        return ()
    if not isinstance(spec, Mapping):
        return merge((), spec)
    return merge((), [_dim(name, dim, sizes) for name, dims in spec.items() for dim, sizes in _items(name, dims)])


def merge(old: Sequence[DynamicDim], new: Sequence[DynamicDim]) -> tuple[DynamicDim, ...]:
    """Old and new declarations; where both speak of the same dimension the new one counts."""
    by_place = {(dim.input, dim.dim): dim for dim in [*old, *new]}
    return tuple(by_place[place] for place in sorted(by_place))


def _items(name: str, dims: Any) -> list[tuple[Any, Any]]:
    if not isinstance(dims, Mapping):
        raise InputError(f"dynamic['{name}'] must map dimensions to ranges, such as {{1: (1, 512)}}; got {dims!r}.")
    return list(dims.items())


def _dim(name: str, dim: Any, sizes: Any) -> DynamicDim:
    pair = tuple(sizes) if isinstance(sizes, tuple | list) else ()
    numbers = (dim, *pair)
    if len(numbers) != 3 or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise InputError(
            f"dynamic['{name}'][{dim!r}] is {sizes!r}; give the smallest and largest size, such as {{1: (1, 512)}}."
        )
    return DynamicDim(input=name, dim=dim, min=pair[0], max=pair[1])
