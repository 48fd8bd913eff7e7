"""Which calls each program of a choice takes. In: a `ShapeChoice`, a guard with ranges. Out: guards, in order.

One guard for each static program, the cheapest first, then the dynamic program's; the first that takes a call serves
it. A program that pads takes smaller calls as well: down to the smallest declared size where nothing is behind it, so
that sizes which the trace does not have are served, too; else down to the smallest that it is cheaper for. A program
that does not pad takes its own size alone. Where calls are cut, the program for the parts takes all larger calls, or
the dynamic one does. Not covered: building the programs, padding itself (runtime/), the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from compilot.errors import InputError
from compilot.records import Bucket, DimRange, Guard, PolicyForecast, ShapeChoice, ShapePolicy, SplitRule, TensorGuard
from compilot.verdict.shape_costs import Sizes

PADDING = (ShapePolicy.BUCKETS, ShapePolicy.POWERS_OF_TWO, ShapePolicy.MIXED, ShapePolicy.SPLIT)


class SizePlaces(NamedTuple):
    """One dimension of a choice: everywhere in a call where its size stands."""

    places: tuple[tuple[str, int], ...]  # path of a tensor in the guard, and its dimension


class ShapeEntry(NamedTuple):
    """One program of a plan for many sizes."""

    name: str  # of the plan's entry: "37", "4x128", "dynamic"
    guard: Guard  # which calls it takes
    sizes: Sizes | None  # that the program is built for; None: the dynamic one
    pads: bool  # calls that are smaller are padded up to it
    split: SplitRule | None = None  # calls with many rows are answered by it in parts


def shape_entries(
    choice: ShapeChoice, guard: Guard, dims: Sequence[SizePlaces], *, may_pad: bool
) -> tuple[ShapeEntry, ...]:
    """The entries of a choice, in the order in which they are to be asked; eager alone has none.

    guard: of a call, with the declared range wherever a size varies. may_pad: as in the costs of the choice.
    """
    chosen = choice.chosen
    if any(len(one.sizes) != len(dims) for one in chosen.buckets):
        raise InputError("a choice needs the places of each of its dimensions.")
    pads = may_pad and chosen.policy in PADDING
    found = [_static(one, chosen, guard, dims, pads) for one in sorted(chosen.buckets, key=_cheapest)]
    if chosen.uses_dynamic:
        by_static = any(one.split is not None for one in found)
        found.append(ShapeEntry("dynamic", guard, None, pads=False, split=None if by_static else chosen.split))
    return tuple(found)


def _cheapest(bucket: Bucket) -> tuple[float, Sizes]:
    return bucket.call_s, bucket.sizes


def _static(bucket: Bucket, chosen: PolicyForecast, guard: Guard, dims: Sequence[SizePlaces], pads: bool) -> ShapeEntry:
    taken: dict[tuple[str, int], int | DimRange] = {}
    split = chosen.split if chosen.split is not None and bucket.sizes == (chosen.split.rows,) else None
    for dim, top, smallest in zip(dims, bucket.sizes, bucket.smallest, strict=True):
        for path, place in dim.places:
            declared = _declared(guard, path, place)
            low = smallest if chosen.uses_dynamic else declared.min
            high = top if split is None else declared.max
            taken[path, place] = DimRange(min=low, max=high) if pads and low < high else high
    name = "x".join(map(str, bucket.sizes))
    narrowed = msgspec.structs.replace(guard, tensors=_narrowed(guard, taken))
    return ShapeEntry(name, narrowed, bucket.sizes, pads, split)


def _declared(guard: Guard, path: str, dim: int) -> DimRange:
    shape = next((tensor.shape for tensor in guard.tensors if tensor.path == path), ())
    size = shape[dim] if -len(shape) <= dim < len(shape) else None
    if not isinstance(size, DimRange):
        raise InputError(f"dimension {dim} of {path} has no declared range; declare it to choose sizes for it.")
    return size


def _narrowed(guard: Guard, taken: dict[tuple[str, int], int | DimRange]) -> tuple[TensorGuard, ...]:
    """The guard's tensors with these sizes."""
    return tuple(
        msgspec.structs.replace(
            tensor, shape=tuple(taken.get((tensor.path, dim), size) for dim, size in enumerate(tensor.shape))
        )
        for tensor in guard.tensors
    )
