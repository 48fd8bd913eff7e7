"""Variants of one guard: calls that the guard takes, yet a compiler sees as different programs.

In: the tensors of a matching call. Out: a key that says which variant it is, a fast check for more of the same, and
what was prepared so far and what could not be. Covered: inference mode and inference tensors, requires_grad of inputs,
and every new shape of a dynamic input, because a compiler may need another program for it (sizes 0 and 1, or a bound of
its own making). Not covered: what a compiler guards beyond the inputs; it recompiles for that by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from compilot._torch.tensor_guards import Check, tensor_check
from compilot.records import DimRange, TensorGuard

MAX_BUILDS = 12  # inference mode on and off, times a few sizes that compilers treat on their own
MAX_SHAPES = 1 << 13  # prepared shapes remembered per variant, 0.9 kB each; of more of them the oldest are forgotten
Modes = tuple[object, ...]
Shapes = torch.Size | tuple[torch.Size, ...]  # of the dynamic inputs: bare where there is one, as the hot path asks


class Variant(NamedTuple):
    """What the hot path needs to recognise one variant."""

    checks: dict[Shapes, Check]  # one for each of the prepared shapes: their sizes, and strides as in the plan


class VariantKey(NamedTuple):
    """Where a call belongs: the variant, and the shapes within it."""

    modes: Modes  # of the variant
    shapes: Shapes


class Variants:
    """What an engine has prepared since it was loaded, and what it could not."""

    def __init__(self, guards: Sequence[TensorGuard], builds: Callable[[], int] | None, parts: int = 1) -> None:
        """builds: how many programs the engine has built; None: one per preparation. parts: programs of one variant."""
        self._limit = MAX_BUILDS * max(parts, 1)
        self._guards = guards
        self._builds = builds
        self._found: dict[Modes, Variant] = {}
        self._broken: dict[VariantKey, str] = {}
        self._asked = 0

    def key_of(self, tensors: Sequence[torch.Tensor]) -> VariantKey:
        """Where the call with these tensors belongs."""
        modes = torch.is_inference_mode_enabled(), tuple((t.is_inference(), t.requires_grad) for t in tensors)
        shapes = tuple(t.shape for guard, t in zip(self._guards, tensors, strict=True) if is_dynamic(guard))
        return VariantKey(modes, shapes[0] if len(shapes) == 1 else shapes)

    def ready(self, key: VariantKey) -> Variant | None:
        """The variant, if it is prepared for these shapes."""
        variant = self._found.get(key.modes)
        return variant if variant is not None and key.shapes in variant.checks else None

    def why_not(self, key: VariantKey) -> str | None:
        """Why the engine is not to prepare this; None: it may."""
        reason = self._broken.get(key)
        if reason is None and self.builds() >= self._limit:
            return f"more than {self._limit} programs would be needed for the planned call"
        return reason

    def builds(self) -> int:
        """Programs built so far."""
        return self._asked if self._builds is None else self._builds()

    def ask(self) -> None:
        """The engine is asked to prepare something."""
        self._asked += 1

    def unask(self) -> None:
        """It did not take the call, so it built nothing."""
        self._asked -= 1

    def add(self, key: VariantKey, tensors: Sequence[torch.Tensor]) -> Variant:
        """It did, for these tensors: calls of the same variant and shapes are known by a fast check from now on."""
        variant = self._found.setdefault(key.modes, Variant({}))
        while len(variant.checks) >= MAX_SHAPES:
            del variant.checks[next(iter(variant.checks))]
        variant.checks[key.shapes] = tensor_check(tensors)
        return variant

    def give_up(self, key: VariantKey, reason: str) -> None:
        """It could not."""
        if len(self._broken) < MAX_BUILDS:
            self._broken[key] = reason


def is_dynamic(guard: TensorGuard) -> bool:
    """Whether any dimension may vary."""
    return any(isinstance(size, DimRange) for size in guard.shape)
