"""Calls at other declared sizes, the same ones in every process.

In: an example call and the ranges of its varying dimensions, by path. Out: named sizes (smallest, largest, odd ones in
between) and the call at such sizes. Dimensions that look alike (alike.py) move together. Not covered: sizes that look
alike and are not one (workload/variations.py parts them), and whether the model answers such a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from compilot._tree import Call, call_leaves, is_tensor
from compilot.inputs.alike import Group, grouped
from compilot.inputs.values import draw, generator, like, map_tensors
from compilot.records import DimRange

Ranges = Mapping[str, Mapping[int, DimRange]]  # path of a tensor -> dimension -> its sizes
Place = tuple[str, int]  # path of a tensor, dimension
Sizes = dict[Group, int]
_RESIZE_SEED = 1000  # apart from the seeds of other cases


def groups_of(call: Call, ranges: Ranges) -> dict[Place, Group]:
    """The group of each varying dimension."""
    shapes = {leaf.path: leaf.value.shape for leaf in call_leaves(call) if is_tensor(leaf.value)}
    found = {path: grouped(dict(sorted(dims.items())), shapes[path]) for path, dims in ranges.items()}
    return {(path, dim): group for path, groups in found.items() for dim, group in groups.items()}


def other_sizes(groups: Sequence[Group]) -> Iterator[tuple[str, Sizes]]:
    """Named sizes that differ from the example's and from each other; groups: each once."""
    seen = [{group: group.size for group in groups}]
    for name, sizes in _wanted(sorted(groups)):
        if sizes not in seen:
            seen.append(sizes)
            yield name, sizes


def _wanted(groups: Sequence[Group]) -> Iterator[tuple[str, Sizes]]:
    yield "smallest", {group: group.min for group in groups}
    yield "largest", {group: group.max for group in groups}
    if any(group.min < 1 <= group.max for group in groups):
        yield "size 1", {group: max(group.min, 1) for group in groups}
    for third in (1, 2):
        sizes = {group: _odd(group, third, 2 * i) for i, group in enumerate(groups)}
        yield "odd " + "x".join(str(size) for size in sizes.values()), sizes


def _odd(group: Group, third: int, shift: int) -> int:
    """An odd size a third (or two) into the range; shifted, so that groups differ from each other."""
    size = group.min + (group.max - group.min) * third // 3 + shift
    return max(group.min, min(size | 1, group.max))


def resized(call: Call, sizes: Mapping[Place, int], seed: int) -> Call:
    """The call with new values at these sizes; other dimensions keep theirs."""

    def resize(path: str, tensor: torch.Tensor) -> torch.Tensor:
        shape = [sizes.get((path, dim), size) for dim, size in enumerate(tensor.shape)]
        return like(tensor, draw(tensor, shape, generator(seed + _RESIZE_SEED, path)))

    return map_tensors(call, resize)
