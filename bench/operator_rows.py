"""What the rows of the operator table are made of.

In: tensors. Out: a Row: a name, a function of tensors, a harmless example to build from and the values to ask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAN, INF = math.nan, math.inf


class Row(NamedTuple):
    """One operator at one dtype."""

    name: str
    fn: Callable[..., Any]
    example: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def extremes(dtype: torch.dtype) -> Tensor:
    """Both ends of an integer type, their neighbours, and small numbers of both signs."""
    info = torch.iinfo(dtype)
    near = [info.min, info.min + 1, info.max - 1, info.max, info.min // 2, info.max // 2 + 1]
    small = [-100, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 100]
    return torch.tensor([n for n in [*near, *small] if info.min <= n <= info.max], dtype=dtype)


def pairs(values: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Every value with every other."""
    grid = torch.cartesian_prod(values, others.to(values.dtype))
    return grid[:, 0].contiguous(), grid[:, 1].contiguous()


def like(values: Tensor) -> Tensor:
    """An example that any operator takes: 1, 2, 3, 1, 2, 3..."""
    if values.dtype is torch.bool:
        return torch.arange(values.numel()).reshape(values.shape) % 2 == 0
    return (torch.arange(values.numel()).reshape(values.shape) % 3 + 1).to(values.dtype)


def row(name: str, fn: Callable[..., Any], *values: Tensor, example: tuple[Tensor, ...] | None = None) -> Row:
    return Row(name, fn, example or tuple(map(like, values)), values)
