"""Batch sizes as a user gives them. In: "1,2,4,8" or numbers. Out: sizes in order, and the dimension that they need."""

from __future__ import annotations

from collections.abc import Sequence

from compilot.errors import InputError
from compilot.records import DynamicDim

MOST = 32  # sizes of one run; each takes a race
LARGEST = 1 << 20  # samples of a call


def given_batch_sizes(given: str | Sequence[int] | None) -> tuple[int, ...]:
    """Each size once, smallest first; () where none are given."""
    if given is None:
        return ()
    sizes = sorted({_size(one) for one in (given.split(",") if isinstance(given, str) else given)})
    if not 1 <= len(sizes) <= MOST:
        raise InputError(f"give 1 to {MOST} batch sizes, such as 1,2,4,8.")
    return tuple(sizes)


def _size(given: object) -> int:
    text = str(given).strip()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LARGEST:
        raise InputError(f"'{text}' is no batch size; give whole numbers from 1 up, such as 1,2,4,8.")
    return int(text)


def with_batch_dimension(dims: Sequence[DynamicDim], sizes: Sequence[int]) -> tuple[DynamicDim, ...]:
    """The declared dimensions, with the batch of all inputs among them where sizes are given and none is declared."""
    from compilot.workload.dynamic import EVERY, SHORTHANDS

    batch = SHORTHANDS["batch"]
    if not sizes or any(dim.dim == batch for dim in dims):
        return tuple(dims)
    return (*dims, DynamicDim(input=EVERY, dim=batch, min=min(sizes), max=max(sizes)))
