"""Does a call match a guard, and if not, why? The general form; the hot path is generated (codegen.py).

In: a guard and a call in the guard's own form. Out: None, or one short reason; of a call that matches, its tensors.
Covered: every leaf and container of the guard, grad mode, autocast, train mode, torch's default dtype; tensors that
only look plain (nested, wrapped by torch.func, without memory), tracing and forward-mode differentiation.
Not covered: bringing a call into the guard's form (call_form.py), variants within a guard (variants.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from compilot._torch.tensor_guards import any_autocast, odd_mode, oddity
from compilot._tree import Call, Leaf, call_leaves, map_call
from compilot.errors import first_cause
from compilot.inputs.layouts import fits, strides_of
from compilot.inputs.paths import Path, parse
from compilot.records import ContainerGuard, DimRange, Guard, TensorGuard, ValueGuard
from compilot.runtime.guards import type_name
from compilot.runtime.indexing import checker, complaint
from compilot.runtime.notices import GRADIENTS

OTHER_ARGUMENTS = "other arguments"
_OF_LEAVES = ("type", "keys", "length", "value", "dtype", "device", "layout", "shape", "strides")
_MISMATCHES = (OTHER_ARGUMENTS, *(f"{word} of " for word in _OF_LEAVES))


def is_mismatch(reason: str) -> bool:
    """Whether this is why arguments do not match a guard: then nothing failed."""
    return reason.startswith(_MISMATCHES)


class _Size(NamedTuple):
    path: Path
    dim: int


class _Index(NamedTuple):
    """A check of one input's values, with its paths read once."""

    path: Path
    want: TensorGuard
    check: Callable[..., bool]
    sizes: list[_Size]

    @classmethod
    def of(cls, want: TensorGuard) -> _Index:
        check, sizes = checker(want)
        return cls(parse(want.path), want, check, [_Size(parse(size.path), size.dim) for size in sizes])


class Matcher:
    """A guard with its paths read once."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.tensors = [(parse(t.path), t) for t in guard.tensors]
        self._containers = [(parse(c.path), c) for c in sorted(guard.containers, key=lambda c: len(c.path))]
        self._values = [(parse(v.path), v) for v in guard.values]
        self._indices = [_Index.of(tensor) for tensor in guard.tensors if tensor.index is not None]

    def mode_mismatch(self, training: bool) -> str | None:
        """Why the modes of this thread or the model do not match."""
        guard = self.guard
        if training != guard.training:
            return "train mode" if training else "eval mode, plan was made in train mode"
        if torch.is_grad_enabled() != guard.grad_enabled:
            return "gradients disabled" if guard.grad_enabled else GRADIENTS
        if any_autocast() != guard.autocast:
            return "outside of autocast" if guard.autocast else "autocast"
        if (now := str(torch.get_default_dtype())) != guard.default_dtype and guard.default_dtype:
            return f"default dtype: {now}, plan has {guard.default_dtype}"
        return odd_mode()

    def mode_mismatch_without_weights(self, training: bool, call: Call) -> str | None:
        """The same where no weights want gradients: if no input does either, grad mode means nothing."""
        careless = torch.is_grad_enabled() and not self.guard.grad_enabled
        if careless and not any(map(_wants_gradients, call_leaves(call))):
            with torch.no_grad():
                return self.mode_mismatch(training)
        return self.mode_mismatch(training)

    def call_mismatch(self, call: Call) -> str | None:
        """Why the arguments do not match; what cannot even be compared does not."""
        try:
            return self._compared(call)
        except Exception as error:
            return f"arguments that cannot be compared: {first_cause(error)}"

    def _compared(self, call: Call) -> str | None:
        if len(call.args) != self.guard.positional or tuple(call.kwargs) != self.guard.keywords:
            return f"{OTHER_ARGUMENTS}: {_pattern(len(call.args), call.kwargs)}"
        for rows in (self._containers, self._values, self.tensors):
            for path, want in rows:
                why = _COMPARE[type(want)](want, path.follow(call.args, call.kwargs))
                if why is not None:
                    return why
        return self._index_mismatch(call)

    def _index_mismatch(self, call: Call) -> str | None:
        """Why the values of an input must not be used as indices; its shape and dtype have been compared."""
        for path, want, check, sizes in self._indices:
            found = [size.path.follow(call.args, call.kwargs).shape[size.dim] for size in sizes]
            tensor = path.follow(call.args, call.kwargs)
            if not check(tensor, *found):
                return complaint(want, tensor, found)
        return None

    def tensors_of(self, call: Call) -> list[torch.Tensor]:
        """The tensor leaves of a matching call, in the guard's order."""
        return [path.follow(call.args, call.kwargs) for path, _ in self.tensors]

    def with_planned_strides(self, call: Call) -> Call:
        """A matching call with the plan's strides where a dimension has size 1 and the stride means nothing."""
        changed: dict[str, torch.Tensor] = {}
        for guard, tensor in zip(self.guard.tensors, self.tensors_of(call), strict=True):
            moved = _same_strides(guard, tensor)
            if moved is not tensor:
                changed[guard.path] = moved
        return map_call(call, lambda path, leaf: changed.get(path, leaf)) if changed else call


def _wants_gradients(leaf: Leaf) -> bool:
    return isinstance(leaf.value, torch.Tensor) and leaf.value.requires_grad


def _pattern(positional: int, kwargs: Mapping[str, Any]) -> str:
    return ", ".join([f"{positional} positional", *(f"{key}=" for key in kwargs)])


def _container(want: ContainerGuard, node: Any) -> str | None:
    if type_name(node) != want.type:
        return f"type of {want.path}: {type_name(node)}, plan has {want.type}"
    if want.keys is not None and tuple(repr(key) for key in node) != want.keys:
        return f"keys of {want.path}"
    if want.length is not None and len(node) != want.length:
        return f"length of {want.path}: {len(node)}, plan has {want.length}"
    return None


def _value(want: ValueGuard, value: Any) -> str | None:
    if type_name(value) != want.type:
        return f"type of {want.path}: {type_name(value)}, plan has {want.type}"
    return None if not want.value or repr(value) == want.value else f"value of {want.path}: plan has {want.value}"


def _tensor(want: TensorGuard, tensor: Any) -> str | None:
    if type(tensor) is not torch.Tensor:
        return f"type of {want.path}: {type_name(tensor)}, plan has a tensor"
    if odd := oddity(tensor):
        return f"{odd} at {want.path}"
    for name, have, wanted in (
        ("dtype", str(tensor.dtype), want.dtype),
        ("device", str(tensor.device), want.device),
        ("layout", str(tensor.layout), "torch.strided"),
    ):
        if have != wanted:
            return f"{name} of {want.path}: {have}, plan has {wanted}"
    if not sizes_fit(tensor.shape, want.shape):
        return f"shape of {want.path}: {_sizes(tensor.shape)}, plan has {_sizes(want.shape)}"
    if tensor.is_conj() or tensor.is_neg():
        return f"lazy conjugate or negative view at {want.path}"
    if not _strides_fit(tensor, want):
        return f"strides of {want.path}: not laid out as in the plan"
    return None


def sizes_fit(shape: Sequence[int], wanted: Sequence[int | DimRange]) -> bool:
    """Whether each size is the wanted one, or in the wanted range."""
    if len(shape) != len(wanted):
        return False
    return all(w.min <= n <= w.max if isinstance(w, DimRange) else n == w for n, w in zip(shape, wanted, strict=True))


def _strides_fit(tensor: torch.Tensor, want: TensorGuard) -> bool:
    """A dimension of size 1 or a tensor without elements may have any stride."""
    if want.stride is None:
        return tensor.is_contiguous() if want.order is None else fits(tensor.shape, tensor.stride(), want.order)
    rows = zip(tensor.shape, tensor.stride(), want.stride, strict=True)
    return tensor.numel() == 0 or all(have == wanted for size, have, wanted in rows if size != 1)


def _sizes(shape: Any) -> str:
    return "x".join(f"{n.min}..{n.max}" if isinstance(n, DimRange) else str(n) for n in shape) or "scalar"


def _same_strides(guard: TensorGuard, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the plan's strides: only dimensions of size 1 can differ, where a stride means nothing."""
    wanted = guard.stride or strides_of(tensor.shape, guard.order)
    return tensor if tensor.stride() == wanted else tensor.as_strided(tensor.shape, wanted)


_COMPARE: dict[type, Callable[[Any, Any], str | None]] = {
    ContainerGuard: _container,
    ValueGuard: _value,
    TensorGuard: _tensor,
}
