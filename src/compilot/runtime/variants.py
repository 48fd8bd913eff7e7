"""Variants of one guard: calls that the guard takes, yet a compiler sees as different programs.

In: the tensors of a matching call. Out: a place that says which variant it is, a fast check for more of the same, and
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
MAX_SHAPES = 1 << 15  # prepared shapes remembered per variant, 0.9 kB each; more of them take the slow path every time
Key = tuple[object, ...]
Shapes = torch.Size | tuple[torch.Size, ...]  # of the dynamic inputs: bare where there is one, as the hot path asks


class Variant(NamedTuple):
    """What the hot path needs to recognise one variant."""

    checks: dict[Shapes, Check]  # one for each of the prepared shapes: their sizes, and strides as in the plan


class Place(NamedTuple):
    """Where a call belongs."""

    key: Key  # of the variant
    shapes: Shapes


class Variants:
    """What an engine has prepared since it was loaded, and what it could not."""

    def __init__(self, guards: Sequence[TensorGuard], builds: Callable[[], int] | None) -> None:
        """builds: how many programs the engine has built; None: one per preparation."""
        self._guards = guards
        self._builds = builds
        self._found: dict[Key, Variant] = {}
        self._broken: dict[Place, str] = {}
        self._asked = 0

    def place(self, tensors: Sequence[torch.Tensor]) -> Place:
        """Where the call with these tensors belongs."""
        key = torch.is_inference_mode_enabled(), tuple((t.is_inference(), t.requires_grad) for t in tensors)
        shapes = tuple(t.shape for guard, t in zip(self._guards, tensors, strict=True) if is_dynamic(guard))
        return Place(key, shapes[0] if len(shapes) == 1 else shapes)

    def ready(self, place: Place) -> Variant | None:
        """The variant, if it is prepared for these shapes."""
        variant = self._found.get(place.key)
        return variant if variant is not None and place.shapes in variant.checks else None

    def why_not(self, place: Place) -> str | None:
        """Why the engine is not to prepare this; None: it may."""
        reason = self._broken.get(place)
        if reason is None and self.builds() >= MAX_BUILDS:
            return f"more than {MAX_BUILDS} programs would be needed for the planned call"
        return reason

    def builds(self) -> int:
        """Programs built so far."""
        return self._asked if self._builds is None else self._builds()

    def ask(self) -> None:
        """The engine is asked to prepare something."""
        self._asked += 1

    def add(self, place: Place, tensors: Sequence[torch.Tensor]) -> Variant:
        """It did, for these tensors: calls of the same variant and shapes are known by a fast check from now on."""
        variant = self._found.setdefault(place.key, Variant({}))
        if len(variant.checks) < MAX_SHAPES:
            variant.checks[place.shapes] = tensor_check(tensors)
        return variant

    def give_up(self, place: Place, reason: str) -> None:
        """It could not."""
        if len(self._broken) < MAX_BUILDS:
            self._broken[place] = reason


def is_dynamic(guard: TensorGuard) -> bool:
    """Whether any dimension may vary."""
    return any(isinstance(size, DimRange) for size in guard.shape)
