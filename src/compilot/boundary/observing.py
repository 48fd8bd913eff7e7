"""Calls of submodules, as they are made inside of calls of the model at several sizes.

In: calls of the model at the declared sizes, the example first. Out: of each submodule its first call, the static guard
of every one, or why there is none. Who makes the calls, and how a submodule's are seen, is up to others: stand-ins
(capture.py), hooks (diagnose/model/region_fitness.py). Not covered: what one guard takes of them (merging.py).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import Call, map_call
from compilot.boundary.merging import Seen
from compilot.errors import InputError
from compilot.inputs.resizing import Ranges, groups_of, other_sizes, resized
from compilot.records import ANY_SIZE, DimRange, Guard, Shapes, ValueGuard
from compilot.runtime.call_form import CallForm
from compilot.runtime.guards import make_guard

ALIGNED_BYTES = 64  # torch's own memory begins at multiples of this


class At(NamedTuple):
    """A call of the model, and its declared sizes."""

    sizes: tuple[int, ...]  # group by group; (): none is declared
    call: Call


def calls_at(call: Call, ranges: Ranges, seed: int = 0) -> Iterator[At]:
    """The example, then calls at other declared sizes."""
    groups = groups_of(call, ranges)
    order = [*dict.fromkeys(groups.values())]
    yield At(tuple(group.size for group in order), call)
    for _, sizes in other_sizes(order) if order else ():
        wanted = {place: sizes[group] for place, group in groups.items()}
        yield At(tuple(sizes[group] for group in order), resized(call, wanted, seed))


def declared(guard: Guard) -> Ranges:
    """The sizes that vary in a guard, where somebody said in which range."""
    found = {
        t.path: {dim: size for dim, size in enumerate(t.shape) if isinstance(size, DimRange) and size != ANY_SIZE}
        for t in guard.tensors
    }
    return {path: dims for path, dims in found.items() if dims}


class Recorder:
    """Notes the calls of one submodule; keeps the first, with its tensors.

    Calls are noted in the written form of the first: a mask by its position here and by its name there is one way.
    """

    def __init__(self, module: nn.Module, *, keep: bool = True) -> None:
        self._module = module
        self._keep = keep
        self.first: Call | None = None
        self.seen: list[Seen] = []
        self.problem = ""  # why a call has no guard
        self._form: CallForm | None = None  # of the first call

    def look(self, call: Call, sizes: Sequence[int]) -> None:
        """Note one call, as it is now: its inputs may be written to later."""
        grad = torch.is_grad_enabled()
        if self._form is not None:
            call = self._form(call.args, call.kwargs) or call
        try:
            guard = make_guard(self._module, call, dynamic=(), shapes=Shapes.STATIC, grad=grad, objects=True)
            if self.first is None and self._keep:
                self.first = map_call(call, lambda path, leaf: kept(leaf, path))
        except InputError as error:
            self.problem = self.problem or str(error).rstrip(".")
            return
        if self._form is None:
            self._form = CallForm(self._module.forward, guard)
        self.seen.append(Seen(tuple(sizes), guard))


@contextlib.contextmanager
def only_answered(recorders: Collection[Recorder]) -> Iterator[None]:
    """Where the model raises, what was noted since then is dropped: no guard is to take sizes that have no answer."""
    before = [(recorder, len(recorder.seen), recorder.problem) for recorder in recorders]
    try:
        yield
    except Exception:
        for recorder, number, problem in before:
            del recorder.seen[number:]
            recorder.problem = problem
        raise


def kept(leaf: Any, path: str) -> Any:
    """A copy as it is now: tensors with the same sizes and strides, expanded dimensions included; objects in depth.

    Of a view only the memory between its first and its last number is copied, as well aligned as it was: the view of a
    large buffer, which every block may be given, costs what is in it.
    """
    if not isinstance(leaf, torch.Tensor):
        try:
            return copy.deepcopy(leaf)
        except Exception as error:
            raise InputError(f"input {path} is a {type(leaf).__qualname__} that cannot be copied.") from error
    source = leaf.detach()
    before = source.storage_offset() % max(1, ALIGNED_BYTES // source.element_size())
    reach = 1 + sum((size - 1) * step for size, step in zip(source.shape, source.stride(), strict=True))
    length = before + reach if source.numel() else 0
    empty = torch.empty(0, dtype=source.dtype, device=source.device)
    flat = empty.set_(source.untyped_storage(), source.storage_offset() - before, (length,), (1,))
    twin = torch.empty(0, dtype=source.dtype, device=source.device)
    twin.set_(flat.clone().untyped_storage(), before if length else 0, source.shape, source.stride())
    return twin.requires_grad_(leaf.requires_grad)


def objects_in(guard: Guard) -> tuple[ValueGuard, ...]:
    """The inputs that are neither tensors nor plain values."""
    return tuple(value for value in guard.values if not value.value)
