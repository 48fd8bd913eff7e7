"""Are the values of each column of an input in the column's own range? For ids of several tables in one tensor.

In: runs of columns with their limits, a tensor that has passed the rest of the guard. Out: yes or no, and the first
column that is out of range. Numbers are clamped to the limits of their columns and compared with themselves: two
operators, 3.7 microseconds for 32x26 ids, 190 for 4096x26 (bench/overhead.py). Two comparisons, or the ends of each
column, cost more at every size from 32 to 4096 rows. Where only one run of columns is limited, its ends are looked at
(indexing.py). Not covered: columns along a dynamic dimension: a guard has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch

from compilot.records import IndexColumns, IndexRange, SizeOf

Check = Callable[..., bool]
Within = Callable[[torch.Tensor, int, int, Sequence[int]], bool]


def runs(index: IndexRange, size: int) -> Iterator[IndexColumns]:
    """All columns in order, neighbours that share a range as one."""
    start = 0
    for own in (*index.columns, None):
        end = size if own is None else own.first
        if start < end:
            yield IndexColumns(first=start, last=end - 1, low=index.low, high=index.high, exempt=index.exempt)
        if own is not None:
            yield own
            start = own.last + 1


def sizes_of(parts: Sequence[IndexColumns]) -> list[SizeOf]:
    """The sizes that limits follow, in the order in which `wrong_column` takes them."""
    return [end for part in parts for end in (part.low, part.high) if isinstance(end, SizeOf)]


def wrong_column(
    parts: Sequence[IndexColumns], dim: int, tensor: torch.Tensor, found: Sequence[int], within: Within
) -> tuple[int, IndexColumns] | None:
    """The first column that is out of range, and its limits; None: there is none."""
    left = iter(found)
    for part in parts:
        low, high = (
            end if isinstance(end, int) else end.times * next(left) + end.plus for end in (part.low, part.high)
        )
        if within(tensor.narrow(dim, part.first, part.last - part.first + 1), low, high, part.exempt):
            continue
        for column in range(part.first, part.last + 1):
            if not within(tensor.select(dim, column), low, high, part.exempt):
                return column, part
    return None


def takes_all(part: IndexColumns, dtype: torch.dtype) -> bool:
    """Whether these columns may hold all that the dtype can."""
    room = torch.iinfo(dtype)
    fixed = isinstance(part.low, int) and isinstance(part.high, int)
    return fixed and part.low <= room.min and part.high >= room.max  # type: ignore[operator]  # no size


def clamping(
    parts: Sequence[IndexColumns], dim: int, rank: int, dtype: torch.dtype, device: str, otherwise: Check
) -> Check:
    """The check of columns with fixed limits; otherwise: asked where a number is not within them."""
    shape = [-1 if d == dim else 1 for d in range(rank)]
    room = torch.iinfo(dtype)
    exempt, clamp, equal = any(part.exempt for part in parts), torch.clamp, torch.equal

    @functools.cache
    def ends() -> tuple[torch.Tensor, torch.Tensor]:
        rows = [(part.low, part.high) for part in parts for _ in range(part.first, part.last + 1)]
        limits = [[max(min(end, room.max), room.min) for end in column] for column in zip(*rows, strict=True)]
        low, high = (torch.tensor(column, dtype=dtype, device=device).reshape(shape) for column in limits)
        return low, high

    def check(tensor: torch.Tensor) -> bool:
        low, high = ends()
        return equal(clamp(tensor, low, high), tensor) or (exempt and otherwise(tensor))

    return check
