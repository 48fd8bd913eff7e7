"""What padding is about in a workload: which sizes move together, and what may be put where nothing is.

In: `{"input_ids": 0, "attention_mask": 0}`, and the workload's declared dynamic
dimensions. Out: the value for each input; the groups of dimensions that have one size in every call; calls of other
sizes. An input that nobody named gets zero where that is one of its own values, else the smallest of its own; a mask
and what looks like one (ones only) gets zeros. A mask is a bool input, or integers 0 and 1 in an input that is called
a mask; other integers may be anything in another call. Not covered: whether padding changes the answers
(measure/padding.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from compilot._tree import Call, call_leaves, dotted_name, is_tensor, map_call, parameter_names, resolve_dynamic
from compilot.errors import InputError
from compilot.inputs.alike import grouped
from compilot.inputs.values import can_vary, copied, draw, generator, is_mask, like, map_tensors, repeated
from compilot.records import DynamicDim
from compilot.workload.pad_spelling import PadSpec, PadValue


def checked(spec: PadSpec | None, forward: Callable[..., Any], call: Call) -> dict[str, PadValue]:
    """The declaration, if it is one for this call."""
    known = _names(forward, call)
    for name, value in (spec or {}).items():
        if name not in known:
            told = ", ".join(sorted(known)) or "none"
            raise InputError(f"padding of unknown input '{name}'; the tensor inputs of the example are: {told}.")
        if not isinstance(value, bool | int | float) or not math.isfinite(value):
            raise InputError(f"padding['{name}'] is {value!r}; give the number to put there, such as 0.")
        if isinstance(value, float) and not known[name].is_floating_point():
            raise InputError(f"padding['{name}'] is {value!r}, and the input holds integers; give an integer.")
    return dict(spec or {})


def _names(forward: Callable[..., Any], call: Call) -> dict[str, torch.Tensor]:
    roots = parameter_names(forward, call)
    return {dotted_name(leaf.path, roots): leaf.value for leaf in call_leaves(call) if is_tensor(leaf.value)}


class Place(NamedTuple):
    """One dimension of one input."""

    path: str
    dim: int
    name: str  # the user's, of the input

    def __str__(self) -> str:
        return f"{self.name} dimension {self.dim}"


class SizeGroup(NamedTuple):
    """Dimensions that have the same size in every call."""

    places: tuple[Place, ...]
    min: int  # at least 1: nothing can be repeated or masked in an empty input
    max: int
    size: int  # in the example

    @property
    def is_rows(self) -> bool:
        """Whether it is the batch: the first dimension of every input that has it."""
        return all(place.dim == 0 for place in self.places)


class Sized(NamedTuple):
    """A workload's example at other sizes."""

    call: Call
    groups: tuple[SizeGroup, ...]
    values: Mapping[str, PadValue]  # by path
    masks: frozenset[str]  # paths

    @classmethod
    def of(
        cls, forward: Callable[..., Any], call: Call, dynamic: Sequence[DynamicDim], named: Mapping[str, PadValue]
    ) -> Sized:
        """The groups of the declared dimensions, and what each input is padded with."""
        roots = parameter_names(forward, call)
        tensors = {leaf.path: leaf.value for leaf in call_leaves(call) if is_tensor(leaf.value)}
        found: dict[tuple[int, ...], list[Place]] = {}
        for path, ranges in resolve_dynamic(dynamic, forward, call).items():
            for dim, group in grouped(dict(sorted(ranges.items())), tensors[path].shape).items():
                found.setdefault(tuple(group), []).append(Place(path, dim, dotted_name(path, roots)))
        groups = [
            SizeGroup(tuple(places), max(low, 1), high, size)
            for (low, high, size, _), places in found.items()
            if max(low, 1) < high
        ]
        names = {path: dotted_name(path, roots) for path in tensors}
        masks = [path for path, tensor in tensors.items() if _masks(names[path], tensor)]
        usual = {path: False if path in masks else _usual(tensor) for path, tensor in tensors.items()}
        values = {path: named.get(names[path], value) for path, value in usual.items()}
        own = map_call(call, lambda _, leaf: copied(leaf) if can_vary(leaf) else leaf)  # given twice: two tensors here
        return cls(own, tuple(sorted(groups, key=lambda group: not group.is_rows)), values, frozenset(masks))

    def at(self, sizes: Mapping[SizeGroup, int], seed: int = 0) -> Call:
        """The example at these sizes, with values like its own."""
        wanted = {(place.path, place.dim): size for group, size in sizes.items() for place in group.places}

        def resize(path: str, tensor: torch.Tensor) -> torch.Tensor:
            shape = [wanted.get((path, dim), size) for dim, size in enumerate(tensor.shape)]
            random = generator(seed, path)
            if path in self.masks:
                return like(tensor, repeated(tensor.detach(), shape))
            if is_mask(tensor):  # features: repeated ones would make all rows alike
                return torch.randint(0, 2, shape, generator=random).to(tensor.device, tensor.dtype)
            return like(tensor, draw(tensor, shape, random))

        return map_tensors(self.call, resize)


def _masks(name: str, tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.bool or ("mask" in name.lower() and is_mask(tensor))


def _usual(tensor: torch.Tensor) -> PadValue:
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel() or is_mask(tensor):
        return 0
    low, high = int(tensor.min()), int(tensor.max())
    return 0 if low <= 0 <= high else low
