"""How a tensor whose sizes vary lies in memory: the order of its dimensions.

In: shapes and strides. Out: an order, from the dimension with the widest stride to the one with the narrowest; those
left out are expanded (stride 0). The strides at any sizes follow from it. Covered: row-major, transposed, channels-last
and expanded tensors. Not covered: parts of a larger tensor, between whose elements others lie: they have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Order = tuple[int, ...]


def order_of(seen: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Order | None:
    """The order in which all these (shape, strides) are dense; None: there is none."""
    shape, strides = max(seen, key=lambda one: (sum(size > 1 for size in one[0]), prod(one[0])))
    dims = [dim for dim, stride in enumerate(strides) if stride or shape[dim] == 1]
    order = tuple(sorted(dims, key=lambda dim: (-strides[dim], dim)))
    return order if all(fits(one, other, order) for one, other in seen) else None


def strides_of(shape: Sequence[int], order: Order | None = None) -> tuple[int, ...]:
    """The strides of a dense tensor of these sizes; no order: row-major."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape)) if order is None else order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def fits(shape: Sequence[int], strides: Sequence[int], order: Order | None) -> bool:
    """Whether a tensor lies so; a dimension of size 1 or a tensor without elements may have any stride."""
    rows = zip(shape, strides, strides_of(shape, order), strict=True)
    return 0 in shape or all(have == wanted for size, have, wanted in rows if size != 1)


def is_row_major(order: Order) -> bool:
    """Whether every dimension is there, in its own turn."""
    return order == tuple(range(len(order)))
