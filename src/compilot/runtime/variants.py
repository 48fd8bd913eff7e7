"""Variants of one guard: calls that the guard takes, yet a compiler sees as different programs.

In: the tensors of a matching call. Out: a key that says which variant it is, a fast check for more of the same, and the
shapes that were prepared for it. Covered: inference mode and inference tensors, requires_grad of inputs, and every new
shape of a dynamic input, because a compiler may need another program for it (sizes 0 and 1, or a bound of its own
making). Not covered: what a compiler guards beyond the inputs; it recompiles for that by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from compilot._torch.tensor_guards import Check, Sizes, tensor_check
from compilot.records import DimRange, TensorGuard

MAX_SHAPES = 1 << 16  # prepared shapes remembered per variant; more of them take the slow path every time
Key = tuple[object, ...]
Shapes = torch.Size | tuple[torch.Size, ...]  # of the dynamic inputs: bare where there is one, as the hot path asks


class Variant(NamedTuple):
    """What the hot path needs to recognise one variant."""

    check: Check
    shapes: set[Shapes]  # prepared ones


def variant_key(tensors: Sequence[torch.Tensor]) -> Key:
    """Which variant this call is."""
    return torch.is_inference_mode_enabled(), tuple((t.is_inference(), t.requires_grad) for t in tensors)


def make_variant(guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> Variant:
    """A fast check for calls of the same variant as these tensors; no shape is prepared yet."""
    sizes = [[None if isinstance(n, DimRange) else n for n in guard.shape] for guard in guards]
    strides: list[Sizes] = [[None] * len(g.shape) if g.stride is None else g.stride for g in guards]
    return Variant(tensor_check(tensors, sizes, strides), set())


def varying_shapes(guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> Shapes:
    """Shapes of the inputs that have a dynamic dimension."""
    found = tuple(t.shape for guard, t in zip(guards, tensors, strict=True) if is_dynamic(guard))
    return found[0] if len(found) == 1 else found


def is_dynamic(guard: TensorGuard) -> bool:
    """Whether any dimension may vary."""
    return any(isinstance(size, DimRange) for size in guard.shape)


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
