"""Variants of one guard: calls that the guard takes, yet a compiler sees as different programs.

In: the tensors of a matching call. Out: a key that says which variant it is, and a fast check for more of the same.
Covered: inference mode and inference tensors, requires_grad of inputs, sizes 0 and 1 in a dynamic dimension (compilers
treat them specially). Not covered: what a compiler guards beyond the inputs; it recompiles for that by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from compilot._torch.tensor_guards import Check, Sizes, tensor_check
from compilot.records import DimRange, TensorGuard

SMALLEST_GENERAL = 2  # sizes below are compiled on their own
Key = tuple[object, ...]


class Variant(NamedTuple):
    """One prepared variant and what the hot path needs to recognise it."""

    key: Key
    check: Check
    ranges: tuple[tuple[int, int], ...]  # of the dynamic dimensions, in the guard's order


def variant_key(guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> Key:
    """Which variant this call is."""
    tensor_modes = tuple((t.is_inference(), t.requires_grad) for t in tensors)
    small = tuple(min(n, SMALLEST_GENERAL) for n in _varying_sizes(guards, tensors))
    return torch.is_inference_mode_enabled(), tensor_modes, small


def make_variant(key: Key, guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> Variant:
    """A fast check for calls of the same variant as these tensors."""
    sizes = [_sizes(g) for g in guards]
    strides: list[Sizes] = [
        [None] * t.dim() if g.stride is None else g.stride for g, t in zip(guards, tensors, strict=True)
    ]
    limits = [dim for guard in guards for dim in guard.shape if isinstance(dim, DimRange)]
    now = _varying_sizes(guards, tensors)
    ranges = [
        (n, n) if n < SMALLEST_GENERAL else (max(d.min, SMALLEST_GENERAL), d.max)
        for n, d in zip(now, limits, strict=True)
    ]
    return Variant(key, tensor_check(tensors, sizes, strides), tuple(ranges))


def same_strides(guard: TensorGuard, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the plan's strides: only dimensions of size 1 can differ, where a stride means nothing."""
    wanted = guard.stride or _contiguous_strides(tensor.shape)
    return tensor if tensor.stride() == wanted else tensor.as_strided(tensor.shape, wanted)


def _contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _sizes(guard: TensorGuard) -> Sizes:
    return [None if isinstance(n, DimRange) else n for n in guard.shape]


def _varying_sizes(guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> list[int]:
    return [
        size
        for guard, tensor in zip(guards, tensors, strict=True)
        for dim, size in zip(guard.shape, tensor.shape, strict=True)
        if isinstance(dim, DimRange)
    ]
