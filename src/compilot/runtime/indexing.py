"""Are the values of an input in the range that its indices need? Looked at in every call, before the engine is.

In: a tensor's guard with its `IndexRange`, a tensor that has passed the rest of the guard. Out: yes or no. Eager raises
for an index out of range, and eager answers where this says no. One operator finds both ends of the values: 2.1
microseconds for 128 of them, 3.2 for 4096, 0.35 for a single one (bench/overhead.py); numpy, two operators or a
comparison of all values cost more. Columns that have ranges of their own are looked at in columns.py. Not covered:
which values are in range (found at tune time, indices/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compilot.records import IndexColumns, IndexRange, SizeOf, TensorGuard
from compilot.runtime import columns

OUT_OF_RANGE = "index out of range"  # how the reason of such a fallback begins
_ABLE = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}  # what torch finds the ends of


def within(tensor: torch.Tensor, low: int, high: int, exempt: Sequence[int] = ()) -> bool:
    """Whether every value is from low to high, or exempt."""
    if tensor.numel() == 0:
        return True
    if tensor.dtype not in _ABLE:
        tensor = tensor.to(torch.int64)
    smallest, largest = torch.aminmax(tensor.detach())
    if smallest.item() >= low and largest.item() <= high:
        return True
    return bool(exempt) and _all_exempt(tensor[(tensor < low) | (tensor > high)], exempt)


def _all_exempt(values: torch.Tensor, exempt: Sequence[int]) -> bool:
    return bool(torch.isin(values, torch.tensor(exempt, dtype=torch.int64, device=values.device)).all())


def checker(want: TensorGuard) -> tuple[Callable[..., bool], list[SizeOf]]:
    """A function of the tensor, whose shape is checked by then, and of the sizes listed beside it."""
    assert want.index is not None
    if want.index.columns:
        return _of_columns(want)
    low, high, exempt = want.index.low, want.index.high, want.index.exempt
    if isinstance(low, int) and isinstance(high, int):
        single = all(size == 1 for size in want.shape)
        return (_single if single else _fixed)(low, high, exempt), []
    sizes = [end for end in (low, high) if isinstance(end, SizeOf)]

    def check(tensor: torch.Tensor, *found: int) -> bool:
        left = iter(found)
        first = low if isinstance(low, int) else low.times * next(left) + low.plus
        last = high if isinstance(high, int) else high.times * next(left) + high.plus
        return within(tensor, first, last, exempt)

    return check, sizes


def _single(low: int, high: int, exempt: Sequence[int]) -> Callable[[torch.Tensor], bool]:
    """Of one number: an eighth of the price."""

    def check(tensor: torch.Tensor) -> bool:
        value = tensor.item()
        return low <= value <= high or value in exempt

    return check


def _fixed(low: int, high: int, exempt: Sequence[int]) -> Callable[[torch.Tensor], bool]:
    """The usual one, with nothing to look up."""
    ends = torch.aminmax

    def check(tensor: torch.Tensor) -> bool:
        try:
            smallest, largest = ends(tensor)
        except RuntimeError:  # no elements, or a dtype that torch does not order
            return within(tensor, low, high, exempt)
        if smallest.item() >= low and largest.item() <= high:
            return True
        return bool(exempt) and within(tensor, low, high, exempt)

    return check


def _of_columns(want: TensorGuard) -> tuple[Callable[..., bool], list[SizeOf]]:
    parts, dim = _parts(want)
    dtype: torch.dtype = getattr(torch, want.dtype.removeprefix("torch."))
    sizes = columns.sizes_of(parts)

    def check(tensor: torch.Tensor, *found: int) -> bool:
        return columns.wrong_column(parts, dim, tensor, found, within) is None

    if sizes or dtype not in _ABLE:
        return check, sizes
    limited = [part for part in parts if not columns.takes_all(part, dtype)]
    if len(limited) != 1:
        return columns.clamping(parts, dim, len(want.shape), dtype, want.device, check), []
    [part] = limited
    first, count = part.first, part.last - part.first + 1
    inner = _fixed(part.low, part.high, part.exempt)  # type: ignore[arg-type]  # no size
    return lambda tensor: inner(tensor.narrow(dim, first, count)), []


def _parts(want: TensorGuard) -> tuple[list[IndexColumns], int]:
    assert want.index is not None
    size = want.shape[want.index.dim]
    assert isinstance(size, int), f"columns of {want.path} along a dimension that varies"
    return list(columns.runs(want.index, size)), want.index.dim


def complaint(want: TensorGuard, tensor: torch.Tensor, found: Sequence[int]) -> str:
    """Why a tensor that was checked is out of range; found: the sizes that its check was asked with."""
    assert want.index is not None
    wrong = None
    if want.index.columns:
        parts, dim = _parts(want)
        wrong = columns.wrong_column(parts, dim, tensor, found, within)
    if wrong is None:
        return f"{OUT_OF_RANGE} at {want.path}: plan takes {words(want.index)}"
    column, limits = wrong
    return f"{OUT_OF_RANGE} at {want.path}[{':, ' * want.index.dim}{column}]: plan takes {words(limits)}"


def words(wanted: IndexRange | IndexColumns) -> str:
    """The range for people."""
    text = f"{_end(wanted.low)}..{_end(wanted.high)}"
    return f"{text} or {', '.join(map(str, wanted.exempt))}" if wanted.exempt else text


def _end(end: int | SizeOf) -> Any:
    if isinstance(end, int):
        return end
    size = f"{'-' if end.times < 0 else ''}size {end.dim} of {end.path}"
    return f"({size} {'-' if end.plus < 0 else '+'} {abs(end.plus)})" if end.plus else f"({size})"
