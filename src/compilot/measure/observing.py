"""Run one call on fresh copies and note everything it gave and left behind.

In: a callable, the model whose buffers it may change, a call. Out: `Seen`: the output, which inputs were mutated and
to what, which outputs share memory with inputs or with each other, which buffers changed. The caller's inputs and the
model's buffers end as they were.
Covered: nested inputs, shared and expanded tensors, opaque objects (deep-copied). `Watch`: results that do not own
their memory.
Not covered: changes to parameters and plain attributes (see `changed_attributes`, which only tells that there were
some).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compilot._tree import Call, call_leaves
from compilot.measure.outputs import Flat, flatten, flatten_call, plain, same_values, storage_address
from compilot.measure.sharing import sharing


class Seen(NamedTuple):
    """What one call gave and left behind."""

    output: Flat
    inputs_after: dict[str, str]  # structure of the inputs after the call
    mutated: dict[str, Tensor]  # input path -> values after the call
    aliases: list[list[str]]  # [output path, input path] that share memory
    shared: list[list[str]]  # [output path, output path] that share memory
    buffers: dict[str, Tensor]  # name -> values after the call, changed ones only


def observe(fn: Callable[..., Any], model: nn.Module, call: Call, *, grad: bool, seed: int | None) -> Seen:
    """Call fn on copies of the inputs (after seeding torch, where a seed is given) and put the model's buffers back."""
    live, saved = copy_call(call), save_buffers(model)
    try:
        if seed is not None:
            torch.manual_seed(seed)
        with torch.set_grad_enabled(grad):
            output = fn(*live.args, **live.kwargs)
        flat, before, after = flatten(output, "output", grad=grad), flatten_call(call), flatten_call(live)
        return Seen(
            output=flat,
            inputs_after=after.structure,
            mutated=_mutated(before, after),
            aliases=_aliases(flat, after),
            shared=sharing(flat.tensors),
            buffers=changed_buffers(model, saved),
        )
    finally:
        restore_buffers(model, saved)


def copy_call(call: Call, convert: Callable[[Tensor], Tensor] | None = None) -> Call:
    """A deep copy of a call; tensors keep their strides and go through `convert` where it is given."""
    memo: dict[int, Any] = {}
    for leaf in call_leaves(call):
        if isinstance(leaf.value, Tensor) and id(leaf.value) not in memo:
            memo[id(leaf.value)] = _copy_tensor(leaf.value, convert, memo)
    args, kwargs = copy.deepcopy((tuple(call.args), dict(call.kwargs)), memo)
    return Call(args, kwargs)


def copy_model(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy of a model whose parameters, buffers and tensor attributes went through `convert`."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(convert(parameter.detach()).clone(), requires_grad=parameter.requires_grad)
    plain_tensors = (value for module in model.modules() for value in vars(module).values())
    for tensor in [*model.buffers(), *(value for value in plain_tensors if isinstance(value, Tensor))]:
        memo.setdefault(id(tensor), convert(tensor.detach()).clone())
    return copy.deepcopy(model, memo)


def to_double(tensor: Tensor) -> Tensor:
    """Floating and complex tensors in double precision; others as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def save_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all buffers by name."""
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def changed_buffers(model: nn.Module, saved: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values of the buffers that are new or differ from the saved ones."""
    now = dict(model.named_buffers())
    return {name: plain(b) for name, b in now.items() if name not in saved or not same_values(b, saved[name])}


def restore_buffers(model: nn.Module, saved: dict[str, Tensor]) -> None:
    """Put changed buffers back, in place where possible so that copies sharing them see it too."""
    now = dict(model.named_buffers())
    for name, value in saved.items():
        buffer = now.get(name)
        if buffer is not None and same_values(buffer, value):
            continue
        if buffer is not None and buffer.shape == value.shape and buffer.dtype == value.dtype:
            with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                buffer.copy_(value)
        else:
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, value.clone())


def save_attributes(model: nn.Module) -> dict[str, str]:
    """A comparable description of every module's plain attributes."""
    found: dict[str, str] = {}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                found[f"{prefix}.{name}".lstrip(".")] = _describe_attribute(value)
    return found


def changed_attributes(model: nn.Module, saved: dict[str, str]) -> list[str]:
    """Names of the plain attributes that a call changed."""
    now = save_attributes(model)
    return sorted(name for name in now.keys() | saved.keys() if now.get(name) != saved.get(name))


class Watch:
    """Keeps the first call's results alive and tells which of them later calls overwrite."""

    def __init__(self) -> None:
        self._first: dict[str, Tensor] | None = None
        self._copies: dict[str, Tensor] = {}
        self._shared: set[str] = set()

    def see(self, tensors: dict[str, Tensor]) -> None:
        """Look at the results of one more call."""
        if self._first is None:
            self._first = dict(tensors)
            self._copies = {path: plain(tensor) for path, tensor in tensors.items()}
            return
        later = {storage_address(tensor) for tensor in tensors.values()} - {0}
        self._shared |= {path for path, tensor in self._first.items() if storage_address(tensor) in later}

    def overwritten(self) -> set[str]:
        """Paths of first results that share memory with later ones or have changed."""
        first = self._first or {}
        return self._shared | {path for path, tensor in first.items() if not same_values(tensor, self._copies[path])}


def _copy_tensor(tensor: Tensor, convert: Callable[[Tensor], Tensor] | None, memo: dict[int, Any]) -> Tensor:
    detached = tensor.detach()
    # clone() would give an expanded or sliced tensor other strides; deepcopy copies the storage and keeps the view
    dense = detached.layout != torch.strided or detached.clone().stride() == detached.stride()
    new = detached.clone() if dense else copy.deepcopy(detached, memo)
    if convert is not None:
        new = convert(new)
    return new.requires_grad_(tensor.requires_grad)


def _mutated(before: Flat, after: Flat) -> dict[str, Tensor]:
    both = ((path, tensor, after.tensors.get(path)) for path, tensor in before.tensors.items())
    return {path: plain(new) for path, old, new in both if new is not None and not same_values(old, new)}


def _aliases(output: Flat, inputs: Flat) -> list[list[str]]:
    where: dict[int, str] = {}
    for path, tensor in inputs.tensors.items():
        where.setdefault(storage_address(tensor), path)
    where.pop(0, None)
    pairs = ((path, where.get(storage_address(tensor))) for path, tensor in output.tensors.items())
    return [[path, source] for path, source in pairs if source is not None]


def _describe_attribute(value: Any) -> str:
    try:
        flat = flatten(value, "")
    except RecursionError:  # it contains itself
        return f"object {type(value).__name__}"
    sums = {path: str(plain(tensor).to(torch.complex128).sum().item()) for path, tensor in flat.tensors.items()}
    return f"{flat.structure} {sums}"
