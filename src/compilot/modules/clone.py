"""A structural clone: new module objects, the same tensors.

In: a module. Out: a module of the same classes whose parameters and buffers are the very same tensor objects, so that a
plan can change modules without changing the user's. Covered: shared (tied) submodules, hooks, and attributes that refer
to modules of the tree, also inside lists, tuples, dicts, sets, partials and bound methods. Not covered: references
inside closures and other objects; they keep pointing at the original.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

_OWN_DICTS = ("_parameters", "_buffers", "_modules")


def structural_clone(model: nn.Module) -> nn.Module:
    """A clone that shares every tensor with the model."""
    twins: dict[int, nn.Module] = {id(module): object.__new__(type(module)) for module in model.modules()}
    for module in model.modules():
        twin = twins[id(module)]
        for name, value in module.__dict__.items():
            moved = _repoint(value, twins)
            if moved is value and isinstance(value, dict) and (name in _OWN_DICTS or name.endswith("_hooks")):
                moved = value.copy()
            twin.__dict__[name] = moved
    return twins[id(model)]


def clone_around(model: nn.Module, replaced: Mapping[int, nn.Module]) -> nn.Module:
    """A clone in which other modules stand in for those with these ids; everything else is the model's own.

    Only modules that reach a replaced one are new objects, and these share the dicts of parameters, buffers and hooks:
    what is assigned or registered there later is seen by both. Their other attributes are as they are now.
    """
    twins = {id(module): replaced.get(id(module), module) for module in model.modules()}
    modules = [module for module in model.modules() if id(module) not in replaced]
    above = _reaching(modules, {**replaced})
    twins |= {id(module): object.__new__(type(module)) for module in above}
    for module in above:
        twins[id(module)].__dict__.update({name: _repoint(value, twins) for name, value in vars(module).items()})
    return twins[id(model)]


def _reaching(modules: Sequence[nn.Module], marks: dict[int, nn.Module]) -> list[nn.Module]:
    """The modules from which a marked one can be reached, through whatever `_repoint` looks into."""
    left, found = [*modules], []
    stand_in = nn.Module()  # any other object: only whether something would change is asked
    while more := [m for m in left if any(_repoint(value, marks) is not value for value in vars(m).values())]:
        found += more
        marks |= {id(module): stand_in for module in more}
        left = [module for module in left if id(module) not in marks]
    return found


def alias(model: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Another object of the given class over the model's own attributes: what one is told, the other knows."""
    other = object.__new__(kind)  # a class's own __new__ may do more than make an object
    object.__setattr__(other, "__dict__", model.__dict__)
    return other


def channels_last_clone(model: nn.Module) -> tuple[nn.Module, bool]:
    """A structural clone whose 4-D weights are channels-last, and True; the model itself where none is copied."""
    return _converted(model, _wants_layout, lambda t: t.contiguous(memory_format=torch.channels_last))


def cast_clone(model: nn.Module, dtype: torch.dtype) -> tuple[nn.Module, bool]:
    """A structural clone whose wider floating-point weights are copies in this dtype, and True; without any: itself."""
    return _converted(model, lambda t: is_wider(t, dtype), lambda t: t.to(dtype))


def skeleton(model: nn.Module) -> nn.Module:
    """A structural clone without weights: each is there by name, shape and dtype, on the meta device."""
    return _converted(model, lambda t: True, lambda t: torch.empty_like(t, device="meta"))[0]


def is_wider(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """True for floating-point tensors of a wider dtype than this one."""
    return tensor.is_floating_point() and tensor.dtype.itemsize > dtype.itemsize


def _converted(
    model: nn.Module, wanted: Callable[[torch.Tensor], bool], convert: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[nn.Module, bool]:
    """A structural clone with copies in place of the wanted tensors; tied ones stay tied.

    The model itself where none is wanted: a clone that nobody watches would not see what is assigned to it later.
    """
    clone = structural_clone(model)
    copies: dict[int, torch.Tensor] = {}
    for module in clone.modules():
        for owner in (module._parameters, module._buffers):
            for name, tensor in owner.items():
                if tensor is None or not wanted(tensor):
                    continue
                if id(tensor) not in copies:
                    copies[id(tensor)] = _like(tensor, convert(tensor.detach()))
                owner[name] = copies[id(tensor)]  # type: ignore[assignment]
    return (clone, True) if copies else (model, False)


def _wants_layout(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and tensor.dim() == 4 and tensor.is_floating_point()
    return strided and not tensor.is_contiguous(memory_format=torch.channels_last)


def _like(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(copy, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copy


def has_weights(model: nn.Module) -> bool:
    """False for a model whose code is all there is to it: nothing can change behind its compiled form."""
    return next(itertools.chain(model.parameters(), model.buffers()), None) is not None


def _repoint(value: Any, twins: Mapping[int, nn.Module]) -> Any:
    """The value with modules of the tree replaced by their twins; the value itself where there are none in it."""
    if isinstance(value, nn.Module):
        return twins.get(id(value), value)
    if isinstance(value, types.MethodType):
        owner = _repoint(value.__self__, twins)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
    if isinstance(value, functools.partial):
        return _repoint_partial(value, twins)
    if isinstance(value, dict):
        return _repoint_dict(value, twins)
    if type(value) in (list, tuple, set):
        return _rebuilt(value, [_repoint(part, twins) for part in value], type(value))
    return value


def _repoint_dict(value: dict[Any, Any], twins: Mapping[int, nn.Module]) -> Any:
    parts = [(key, _repoint(part, twins)) for key, part in value.items()]
    if all(new is value[key] for key, new in parts):
        return value
    copy = value.copy()
    copy.update(parts)
    return copy


def _repoint_partial(value: functools.partial[Any], twins: Mapping[int, nn.Module]) -> Any:
    func = _repoint(value.func, twins)
    args, keywords = _repoint(value.args, twins), _repoint(value.keywords, twins)
    if func is value.func and args is value.args and keywords is value.keywords:
        return value
    return functools.partial(func, *args, **keywords)


def _rebuilt(value: Any, parts: list[Any], make: Callable[[list[Any]], Any]) -> Any:
    return value if all(new is old for new, old in zip(parts, value, strict=True)) else make(parts)
