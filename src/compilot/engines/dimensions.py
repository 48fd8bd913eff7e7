"""Varying dimensions for torch.export.

In: the guard's tensors, the example, and a way to ask whether the model answers a call. Out: example tensors that are
fit to be traced, and guesses at which sizes are one. Of those that look alike (inputs/alike.py) the ones that the
model does not let differ are one size, and the marshalling code then insists on it. Sizes 0 and 1 would be baked in by
torch, so the traced example is made larger there. Not covered: sizes that follow from others (twice as long, one
longer); the export refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from compilot.inputs.alike import MOST_ALIKE, SMALLEST_GENERAL, Group, another_size, grouped, partings
from compilot.inputs.values import masking
from compilot.records import DimRange, TensorGuard

_ROOM = 3  # what a small example is traced with where the range allows it: 2 is often a size of something else

Place = tuple[int, int]  # number of the tensor, dimension
Part = Sequence[Place]  # of one size
Answers = Callable[[Sequence[torch.Tensor]], bool]  # whether the model answers a call with these tensors
Groups = list[dict[int, Group]]  # one dict per tensor: dimension -> group


def groups_of(tensors: Sequence[TensorGuard], examples: Sequence[torch.Tensor]) -> Groups:
    """The group of each varying dimension."""
    return [_of_one(want, example) for want, example in zip(tensors, examples, strict=True)]


def _of_one(want: TensorGuard, example: torch.Tensor) -> dict[int, Group]:
    varying = {d: size for d, size in enumerate(want.shape) if isinstance(size, DimRange) and size.min < size.max}
    return grouped(varying, example.shape)


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


def guesses(tensors: Sequence[TensorGuard], examples: Sequence[torch.Tensor], answers: Answers) -> Iterator[Any]:
    """`dynamic_shapes` for a module that takes the tensors as `*tensors`, the likeliest first."""
    groups = groups_of(tensors, examples)
    if not any(groups):
        yield None
        return
    alike = {(i, dim): group for i, one in enumerate(groups) for dim, group in one.items()}
    together = [[place for place in alike if alike[place] == group] for group in dict.fromkeys(alike.values())]
    apart = [part for places in together for part in _tied([[p] for p in places], examples, alike[places[0]], answers)]
    apart = _square(apart, examples, alike, answers)
    tried: list[Any] = []
    for parts in (apart, together, [[place] for place in alike]):
        if sorted(parts) not in tried:
            tried.append(sorted(parts))
            yield _shapes(tensors, alike, parts)


def _shapes(tensors: Sequence[TensorGuard], alike: Mapping[Place, Group], parts: Sequence[Sequence[Place]]) -> Any:
    """One size per part, named after its first place."""
    found: list[dict[int, Any]] = [{} for _ in tensors]
    for part in parts:
        (first, dim), group = part[0], alike[part[0]]
        size = _dim(group, tensors[first].path, dim)
        for i, at in part:
            found[i][at] = size
    return (tuple(found),)


def _tied(units: Sequence[Part], examples: Sequence[torch.Tensor], group: Group, answers: Answers) -> list[list[Place]]:
    """Places that look alike, by what the model lets differ: two are apart when it answers calls that part them.

    Both ways round: a mask that is too long is often cut to length, one that is too short never works. units: places
    that are not parted any more.
    """
    other = another_size(group)
    if other is None:
        return [[place for unit in units for place in unit]]
    parting = [
        half for half in partings(units) if all(answers(_moved(examples, side, other)) for side in _sides(half, units))
    ]
    found: dict[tuple[bool, ...], list[Place]] = {}
    for unit in units:
        found.setdefault(tuple(unit in half for half in parting), []).extend(unit)
    return list(found.values())


def _square(
    parts: Sequence[Part], examples: Sequence[torch.Tensor], alike: Mapping[Place, Group], answers: Answers
) -> list[list[Place]]:
    """The same for two dimensions of one tensor, such as those of a square mask: one size where the model says so."""
    looks: dict[Group, list[Part]] = {}
    for part in parts:
        looks.setdefault(alike[part[0]]._replace(nth=0), []).append(part)
    found: list[list[Place]] = []
    for look, units in looks.items():
        one_tensor = len({alike[unit[0]].nth for unit in units}) > 1
        ask = one_tensor and len(units) <= MOST_ALIKE and another_size(look) is not None
        found += _tied(units, examples, look, answers) if ask else [list(unit) for unit in units]
    return found


def _sides(half: Sequence[Part], units: Sequence[Part]) -> tuple[list[Place], list[Place]]:
    return [p for unit in half for p in unit], [p for unit in units if unit not in half for p in unit]


def _moved(examples: Sequence[torch.Tensor], places: Sequence[Place], size: int) -> list[torch.Tensor]:
    moved = list(examples)
    for i, dim in places:
        longer = torch.cat([moved[i], moved[i]], dim)
        moved[i] = longer.narrow(dim, 0, size).contiguous()
    return [masking(tensor) for tensor in moved]


def _dim(group: Group, path: str, dim: int) -> Any:
    """Named so that torch's complaints tell which dimension: "kwargs_mask_dim_0"."""
    return Dim(re.sub(r"\W+", "_", f"{path}_dim_{dim}"), min=group.min, max=group.max)
