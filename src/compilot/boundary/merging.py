"""One guard for the calls of a submodule at several sizes.

In: the static guards of its calls, with the declared sizes at which each was made. Out: a guard that takes all of them
and what lies in between: a size that was the same every time is fixed, one that grew or shrank with the declared ones
has a range. `Differs` says what no one guard takes, `Unknown` which sizes cannot be told from these calls: they go up
and down, or in steps, or the layout changes with them; an engine that needs no ranges may still take any size. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import NamedTuple

import msgspec

from compilot.inputs.layouts import is_row_major, order_of
from compilot.records import ANY_SIZE, DimRange, Guard, TensorGuard


class Differs(Exception):
    """Calls of one submodule that no one guard takes."""


class Unknown(Exception):
    """Sizes of an input that follow from the declared ones in no way that can be told ahead."""


class Seen(NamedTuple):
    """One call of a submodule."""

    sizes: tuple[int, ...]  # the declared ones of the model's call, group by group
    guard: Guard  # static


class Row(NamedTuple):
    """One size of an input."""

    sizes: tuple[int, ...]  # as above
    value: int


def alike(guards: Sequence[Guard]) -> Guard:
    """The guard of calls that are all made in one way, sizes included."""
    first = guards[0]
    for other in guards[1:]:
        if why := difference(first, other) or _other_sizes(first, other):
            raise Differs(f"it is called in several ways within one call of the model, and one guard takes one: {why}")
    return first


def merged(seen: Sequence[Seen]) -> Guard:
    """The guard for calls at several sizes; the first one is the example's."""
    first = _one_way([one.guard for one in seen])
    tensors = [_tensor(number, seen) for number in range(len(first.tensors))]
    return msgspec.structs.replace(first, tensors=tuple(tensors))


def at_any_size(guards: Sequence[Guard]) -> Guard:
    """The same with every size of every input open."""
    first = _one_way(guards)
    return msgspec.structs.replace(first, tensors=tuple(map(_open, first.tensors)))


def _one_way(guards: Sequence[Guard]) -> Guard:
    for other in guards[1:]:
        if why := difference(guards[0], other):
            raise Differs(f"it is called in another way at other sizes, and one guard takes one: {why}")
    return guards[0]


def _open(tensor: TensorGuard) -> TensorGuard:
    shape, order = (ANY_SIZE,) * len(tensor.shape), order_of([(_numbers(tensor), tensor.stride or ())])
    if order is None:
        raise Unknown(f"{tensor.path} is a part of a larger tensor, whose layout at other sizes is not known")
    return msgspec.structs.replace(tensor, shape=shape, stride=None, order=None if is_row_major(order) else order)


# ------------------------------------------------------------------------------------------------------------ sizes


def _tensor(number: int, seen: Sequence[Seen]) -> TensorGuard:
    """One input at all of these sizes."""
    own = [one.guard.tensors[number] for one in seen]
    shapes = [_numbers(tensor) for tensor in own]
    sizes = tuple(_size(dim, own[0].path, shapes, seen) for dim in range(len(shapes[0])))
    if not any(isinstance(size, DimRange) for size in sizes):
        return own[0]
    order = order_of([(shape, tensor.stride or ()) for shape, tensor in zip(shapes, own, strict=True)])
    if order is None:
        raise Unknown(f"the layout of {own[0].path} changes with its sizes, or it is a part of a larger tensor")
    return msgspec.structs.replace(own[0], shape=sizes, stride=None, order=None if is_row_major(order) else order)


def _size(dim: int, path: str, shapes: Sequence[tuple[int, ...]], seen: Sequence[Seen]) -> int | DimRange:
    values = [shape[dim] for shape in shapes]
    if len({*values}) == 1:
        return values[0]
    once = dict(reversed([*zip((one.sizes for one in seen), values, strict=True)]))  # of each call the first
    if why := _doubt([Row(*row) for row in once.items()]):
        told = ", ".join(str(value) for value in dict.fromkeys(values))
        raise Unknown(f"dimension {dim} of {path} {why} ({told}), so its sizes in between are not known")
    return DimRange(min=min(values), max=max(values))


def _doubt(rows: Sequence[Row]) -> str:
    """Why a size cannot be told from the declared ones; "": it grows or shrinks with them."""
    steps = [(_growth(one.sizes, other.sizes), other.value - one.value) for one in rows for other in rows]
    moves = [(growth, move) for growth, move in steps if growth and move]
    if any(move > 0 for _, move in moves) and any(move < 0 for _, move in moves):
        return "goes up and down with the declared sizes"
    quick, every = any(abs(move) > growth + 1 for growth, move in moves), gcd(*(move for _, move in moves))
    if quick and every > 1 and not any(_follows(rows, group) for group in range(len(rows[0].sizes))):
        return f"goes in steps of {every}"
    return ""


def _growth(low: Sequence[int], high: Sequence[int]) -> int:
    """How much larger the declared sizes of one call are; 0: they are not, or only some of them."""
    by = [b - a for a, b in zip(low, high, strict=True)]
    return max(by, default=0) if min(by, default=0) >= 0 else 0


def _follows(rows: Sequence[Row], group: int) -> bool:
    """Whether a size is a multiple of one declared size, plus a number."""
    low, high = (pick(rows, key=lambda row: row.sizes[group]) for pick in (min, max))
    wide, moved = high.sizes[group] - low.sizes[group], high.value - low.value
    return wide > 0 and all((r.value - low.value) * wide == (r.sizes[group] - low.sizes[group]) * moved for r in rows)


def _numbers(tensor: TensorGuard) -> tuple[int, ...]:
    return tuple(size for size in tensor.shape if isinstance(size, int))


# ------------------------------------------------------------------------------------------------------ everything else


def difference(one: Guard, other: Guard) -> str:
    """What differs between two calls besides sizes, in the words of a guard; "": nothing does."""
    return next(_differences(one, other), "")


def _differences(one: Guard, other: Guard) -> Iterator[str]:
    if (one.positional, one.keywords) != (other.positional, other.keywords):
        yield "other arguments"
    for name, word in (("training", "train mode"), ("grad_enabled", "gradients"), ("autocast", "autocast")):
        if getattr(one, name) != getattr(other, name):
            yield word
    yield from _unlike("make-up", *({c.path: (c.type, c.keys, c.length) for c in g.containers} for g in (one, other)))
    yield from _unlike("value", *({v.path: (v.type, v.value) for v in g.values} for g in (one, other)))
    yield from _unlike("kind", *({t.path: (t.dtype, t.device, len(t.shape)) for t in g.tensors} for g in (one, other)))


def _other_sizes(one: Guard, other: Guard) -> str:
    for want, have in zip(one.tensors, other.tensors, strict=True):
        if want.shape != have.shape:
            planned, now = ("x".join(map(str, tensor.shape)) or "scalar" for tensor in (want, have))
            return f"shape of {want.path}: {now}, plan has {planned}"
        if any(
            a != b for a, b, size in zip(want.stride or (), have.stride or (), want.shape, strict=True) if size != 1
        ):
            return f"strides of {want.path}"
    return ""


def _unlike(word: str, one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    for path in dict.fromkeys((*one, *other)):
        if path not in one or path not in other or one[path] != other[path]:
            yield f"{word} of {path}"
