"""The calls that correctness is judged by: other values, edge values, and the declared sizes.

In: a Workload. Out: named cases, the same ones in every process. Covered: the example where it holds integers; three
seeds; edge values of floats, zeros in one input and masked rows (edges.py); integers beyond the example's own (bold.py:
a candidate's guard may turn those down); the smallest, largest and odd sizes of declared dynamic dimensions, and
unequal ones where sizes look alike (they may be independent); the calls of a shape trace; the items of requests.
Shapes are kept where nothing is declared, because another shape would make a compiled callable compile again. Seeds
draw integers within the example's own values (they may be indices). Not covered: whether eager accepts a case; one on
which eager raises is dropped by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from compilot._tree import Call, call_leaves, dotted_name, is_tensor, parameter_names, resolve_dynamic
from compilot.errors import InputError
from compilot.inputs.alike import Group, another_size, partings
from compilot.inputs.naming import code_words, named_leaves, parameter_words, root_names
from compilot.inputs.resizing import groups_of, other_sizes, resized
from compilot.inputs.values import (
    can_vary,
    copied,
    is_integer,
    is_mask,
    map_tensors,
    masking,
    vary,
)
from compilot.records import CallSizes, DimRange
from compilot.workload import bold as bold_integers
from compilot.workload import edges as edge_values
from compilot.workload.requests import Item
from compilot.workload.shapetrace import (
    Named,
    Sizes,
    TraceDims,
    dims_of,
    is_empty,
    named,
    ranges_of,
    resolve,
    without_inputs,
)
from compilot.workload.workload import Workload

SEEDS = 3


class Case(NamedTuple):
    """One call to judge by.

    special: a difference on it is a note, not a failure. mirror: the same with unequal sizes exchanged; such a case
    counts only where eager answers both, and a candidate may leave it to eager. bold: integers that the model may use
    as indices, counts or sizes; eager is stopped where that gets too large, and a candidate may leave it to eager.
    masked: a mask is set, and models call their layers in another way where one masks nothing; regions may leave theirs
    to eager.
    """

    name: str
    call: Call
    special: bool = False
    mirror: Call | None = None
    bold: bool = False
    masked: bool = False


def cases(workload: Workload) -> list[Case]:
    """Every case of a workload; their tensors are their own, so that a model may write into them."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    edges = [
        Case(name, call, special=name in edge_values.SPECIAL, masked=edge_values.masks(name))
        for name, call in edge_values.edges(workload.call)
    ]
    bold = [Case(name, call, bold=True) for name, call in bold_integers.bold(workload.call, workload.seed)]
    return [
        *_example(workload),
        *_seeds(workload, ranges),
        *edges,
        *_sizes(workload, ranges),
        *_unequal(workload, ranges),
        *(Case(f"item {number}", Call((Item(item),), {})) for number, item in enumerate(workload.judged_items)),
        *bold,
    ]


def size_cases(workload: Workload) -> list[Case]:
    """The cases at the smallest, largest and odd sizes of the declared dynamic dimensions, if any."""
    return list(_sizes(workload, resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)))


def _example(workload: Workload) -> Iterator[Case]:
    """The example itself, where drawn integers may be invalid: ids of several tables have ranges of their own."""
    tensors = [leaf.value for leaf in call_leaves(workload.call) if can_vary(leaf.value)]
    if any(is_integer(tensor) and not is_mask(tensor) for tensor in tensors):
        yield Case("example", map_tensors(workload.call, lambda _, tensor: copied(tensor)))


def _seeds(workload: Workload, ranges: Mapping[str, Mapping[int, DimRange]]) -> Iterator[Case]:
    for seed in range(workload.seed + 1, workload.seed + 1 + SEEDS):
        call = workload.inputs(seed)
        if _fits(call, workload.call, ranges):
            yield Case(f"seed {seed}", call)
        else:  # the user's function gave a shape that no compiled callable is meant to serve
            yield Case(f"seed {seed} at the example's shapes", vary(workload.call, seed))


def _fits(call: Call, example: Call, ranges: Mapping[str, Mapping[int, DimRange]]) -> bool:
    new, old = ({leaf.path: leaf.value for leaf in call_leaves(c) if is_tensor(leaf.value)} for c in (call, example))
    return new.keys() == old.keys() and all(_fits_tensor(new[p], old[p], ranges.get(p, {})) for p in new)


def _fits_tensor(new: torch.Tensor, old: torch.Tensor, ranges: Mapping[int, DimRange]) -> bool:
    if new.dim() != old.dim() or new.dtype != old.dtype:
        return False
    sizes = enumerate(zip(new.shape, old.shape, strict=True))
    return all(ranges[d].min <= n <= ranges[d].max if d in ranges else n == o for d, (n, o) in sizes)


def _sizes(workload: Workload, ranges: Mapping[str, Mapping[int, DimRange]]) -> Iterator[Case]:
    groups = groups_of(workload.call, ranges)
    for name, sizes in other_sizes([*dict.fromkeys(groups.values())]) if groups else ():
        yield Case(name, _resized(workload, {place: sizes[group] for place, group in groups.items()}))


def _unequal(workload: Workload, ranges: Mapping[str, Mapping[int, DimRange]]) -> Iterator[Case]:
    """Sizes that look alike, parted in every way: on those that belong together eager raises."""
    groups = groups_of(workload.call, ranges)
    for group in sorted(set(groups.values())):
        places = [place for place in groups if groups[place] == group]
        sizes = _two_sizes(group)
        if sizes is None:
            continue
        others = {place: other.size for place, other in groups.items() if other != group}
        for moved in partings(places):
            name = f"{', '.join(f'{path} dimension {dim}' for path, dim in moved)} at {sizes[1]}, not {sizes[0]}"
            ways = (others | _parted(places, moved, *way) for way in (sizes, sizes[::-1]))
            call, mirror = (map_tensors(_resized(workload, way), lambda _, tensor: masking(tensor)) for way in ways)
            yield Case(name, call, mirror=mirror)


def _parted(
    places: Sequence[tuple[str, int]], moved: Sequence[tuple[str, int]], stay: int, move: int
) -> dict[tuple[str, int], int]:
    return {place: move if place in moved else stay for place in places}


def _two_sizes(group: Group) -> tuple[int, int] | None:
    """The example's size and another; neither is 1, which would be broadcast."""
    usual = group.size if group.size > 1 else min(group.max, 3)
    other = another_size(group._replace(size=usual))
    return (usual, other) if other is not None and other <= group.max else None


def traced_call(workload: Workload, call: CallSizes) -> Call:
    """The call that a line of a shape trace stands for; dimensions that move together do so here, too."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    sizes = traced_sizes(workload, call)
    groups = groups_of(workload.call, ranges)
    moved = {groups[place]: size for place, size in sizes.items()}
    follow = {place: moved[group] for place, group in groups.items() if group in moved}
    return _resized(workload, {**follow, **sizes})


def traced_sizes(workload: Workload, call: CallSizes) -> Sizes:
    """What a line of a shape trace means for this workload; a wrong one is the user's mistake."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    return resolve(call, ranges, named_dims(workload))


def traced_dims(
    workload: Workload, calls: Sequence[CallSizes], ranges: Mapping[str, DimRange] | None = None, smallest: int = 0
) -> TraceDims:
    """Ranges for the dimensions that vary in a trace without being declared, and what else is to be known of its calls.

    ranges: of the whole trace, by name, where calls are a part of it. smallest: where a range may begin.
    """
    known, recorded = named_dims(workload), any(call.recorded for call in calls)
    found = dims_of(ranges or ranges_of(calls), known, recorded=recorded, smallest=smallest)
    return found._replace(notes=(*found.notes, *without_inputs(calls, known)))


def empty_calls(workload: Workload) -> Callable[[CallSizes], bool]:
    """Whether a call of a trace has an empty input, though its declared range begins at 1 or more."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    known = named_dims(workload)
    return lambda call: is_empty(call, ranges, known)


def named_dims(workload: Workload) -> Named:
    """The workload's dimensions by the names that users write."""
    roots = parameter_names(workload.model.forward, workload.call)
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    shapes = {leaf.path: leaf.value.shape for leaf in call_leaves(workload.call) if is_tensor(leaf.value)}
    words = (parameter_words(workload.model.forward), code_words(workload.model.forward))
    recorded = {
        name: path
        for some in words
        for _, path, name, _ in named_leaves(workload.call, root_names(workload.model.forward, workload.call), some)
        if path in shapes
    }
    return named(ranges, {path: dotted_name(path, roots) for path in shapes}, shapes, recorded)


def at_sizes(workload: Workload, sizes: Mapping[str, int]) -> Workload:
    """The same work on an example of other sizes, by NAME:DIM; dimensions that move together do so here, too."""
    return workload.with_examples([traced_call(workload, CallSizes(line=1, sizes=dict(sizes)))])


def at_batch(workload: Workload, batch: int) -> Workload:
    """The same work on calls with so many samples, wherever dimension 0 is declared; values are drawn anew."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    places = {path: dims[0] for path, dims in ranges.items() if 0 in dims}
    if not places:
        raise InputError("no batch dimension is declared; declare one, such as batch=1..32.")
    for allowed in places.values():
        if not allowed.min <= batch <= allowed.max:
            declared = f"{allowed.min}..{allowed.max}"
            raise InputError(f"batch size {batch} is outside the declared range {declared}; widen it or leave it out.")
    return workload.with_examples([_resized(workload, {(path, 0): batch for path in places})])


def _resized(workload: Workload, sizes: Mapping[tuple[str, int], int]) -> Call:
    return resized(workload.call, sizes, workload.seed)
