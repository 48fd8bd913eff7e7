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

from compilot._torch.tensor_guards import Check, Sizes, tensor_check
from compilot.records import DimRange, TensorGuard

MAX_BUILDS = 12  # inference mode on and off, times a few sizes that compilers treat on their own
MAX_SHAPES = 1 << 16  # prepared shapes remembered per variant; more of them take the slow path every time
Key = tuple[object, ...]
Shapes = torch.Size | tuple[torch.Size, ...]  # of the dynamic inputs: bare where there is one, as the hot path asks


class Variant(NamedTuple):
    """What the hot path needs to recognise one variant."""

    check: Check
    shapes: set[Shapes]  # prepared ones


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
        return variant if variant is not None and place.shapes in variant.shapes else None

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
        """It did, for these tensors."""
        variant = self._found.setdefault(place.key, _variant(self._guards, tensors))
        if len(variant.shapes) < MAX_SHAPES:
            variant.shapes.add(place.shapes)
        return variant

    def give_up(self, place: Place, reason: str) -> None:
        """It could not."""
        if len(self._broken) < MAX_BUILDS:
            self._broken[place] = reason


def _variant(guards: Sequence[TensorGuard], tensors: Sequence[torch.Tensor]) -> Variant:
    """A fast check for calls of the same variant as these tensors; no shape is prepared yet."""
    sizes = [[None if isinstance(n, DimRange) else n for n in guard.shape] for guard in guards]
    strides: list[Sizes] = [[None] * len(g.shape) if g.stride is None else g.stride for g in guards]
    return Variant(tensor_check(tensors, sizes, strides), set())


def is_dynamic(guard: TensorGuard) -> bool:
    """Whether any dimension may vary."""
    return any(isinstance(size, DimRange) for size in guard.shape)
