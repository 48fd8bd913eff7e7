"""Varying dimensions for torch.export.

In: the guard's tensors and the example. Out: example tensors that are fit to be traced, and guesses at which sizes
are one. Dimensions with the same range, the same example size and the same rank among such in their tensor are taken
for one size (batch of ids and of mask); the marshalling code then insists on it. Sizes 0 and 1 would be baked in by
torch, so the traced example is made larger there. Not covered: sizes that follow from others (twice as long, one
longer); the export refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import Dim

from compilot.records import DimRange, TensorGuard

SMALLEST_GENERAL = 2  # torch specialises on sizes 0 and 1
_ROOM = 3  # what a small example is traced with where the range allows it: 2 is often a size of something else


class Group(NamedTuple):
    """Dimensions that are taken for one size."""

    min: int
    max: int
    size: int
    nth: int  # among such dimensions of the same tensor


Groups = list[dict[int, Group]]  # one dict per tensor: dimension -> group


def groups_of(tensors: Sequence[TensorGuard], examples: Sequence[torch.Tensor]) -> Groups:
    """The group of each varying dimension."""
    return [_of_one(want, example) for want, example in zip(tensors, examples, strict=True)]


def _of_one(want: TensorGuard, example: torch.Tensor) -> dict[int, Group]:
    found: dict[int, Group] = {}
    for dim, size in enumerate(want.shape):
        if isinstance(size, DimRange) and size.min < size.max:
            like = Group(size.min, size.max, int(example.shape[dim]), 0)
            found[dim] = like._replace(nth=sum(g._replace(nth=0) == like for g in found.values()))
    return found


def grown(tensors: Sequence[TensorGuard], examples: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The example with varying sizes of 0 and 1 made larger, by repeating what is there."""
    groups = groups_of(tensors, examples)
    return tuple(_grown(example, varying) for example, varying in zip(examples, groups, strict=True))


def _grown(example: torch.Tensor, varying: dict[int, Group]) -> torch.Tensor:
    for dim, group in varying.items():
        if group.size < SMALLEST_GENERAL <= group.max:
            wanted = min(group.max, max(group.min, _ROOM))
            one = example if group.size else example.new_zeros([*example.shape[:dim], 1, *example.shape[dim + 1 :]])
            example = torch.cat([one] * wanted, dim)
    return example


def guesses(tensors: Sequence[TensorGuard], examples: Sequence[torch.Tensor]) -> Iterator[Any]:
    """`dynamic_shapes` for a module that takes the tensors as `*tensors`, the likeliest first."""
    groups = groups_of(tensors, examples)
    if not any(groups):
        yield None
        return
    places = [(tensor.path, dim, g) for tensor, one in zip(tensors, groups, strict=True) for dim, g in one.items()]
    shared = {group: _dim(group, path, dim) for path, dim, group in reversed(places)}  # named after the first place
    yield (tuple({dim: shared[group] for dim, group in one.items()} for one in groups),)
    if len(shared) < sum(len(one) for one in groups):
        own = {(path, dim): _dim(group, path, dim) for path, dim, group in places}
        yield (tuple({d: own[t.path, d] for d in one} for t, one in zip(tensors, groups, strict=True)),)


def _dim(group: Group, path: str, dim: int) -> Any:
    """Named so that torch's complaints tell which dimension: "kwargs_mask_dim_0"."""
    return Dim(re.sub(r"\W+", "_", f"{path}_dim_{dim}"), min=group.min, max=group.max)
