"""Weights that were baked into a callable: notice when the model's own weights change.

In: the module whose weights were baked in. Out: `glance()` for every call, `changed()` for now and then, and a
callback. Seen at the next call: load_state_dict, an optimizer step, .to/.half/.cuda of the whole model, a parameter,
buffer or submodule assigned anew (LoRA). Seen within 256 calls: in-place updates of single parameters, also through
.data, and train/eval of submodules. Not seen: writes through .data that touch none of the probed elements; call
`refresh()` after those.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

PROBES = 16  # elements per tensor that are compared by value in a full look


class WeightWatch:
    """The state of a module's weights at one moment."""

    def __init__(self, model: nn.Module, on_change: Callable[[], None]) -> None:
        modules = list(model.modules())
        self._slots = [slot for module in modules for slot in _slots(module)]
        self._children = [(m._modules, name, child) for m in modules for name, child in m._modules.items()]
        self._training = [(m.__dict__, m.training) for m in modules]
        tensors = {id(tensor): tensor for _, _, tensor in self._slots}
        self._facts = [(t, _version(t), t.data_ptr()) for t in tensors.values()]
        self._probes = _Probes([t for t, _, _ in self._facts])
        self.tensor_ids = set(tensors)
        self.owner_ids = {id(d) for m in modules for d in (m._parameters, m._buffers, m._modules)}
        self._on_change = weakref.WeakMethod(on_change)
        self.sentinel, self.version, self.pointer = self._choose()
        # the storage is kept alive, so that a converted parameter can never come to lie at the same address
        self._kept = None if self.sentinel is None else self.sentinel.detach()
        _watch(self)

    def _choose(self) -> tuple[torch.Tensor | None, int, int]:
        """The last floating-point weight: every update of the whole model touches it."""
        usable = [fact for fact in self._facts if not fact[0].is_inference()]
        floating = [fact for fact in usable if fact[0].is_floating_point()]
        found = floating or usable
        return found[-1] if found else (None, 0, 0)

    def glance(self) -> bool:
        """True when the watched weight changed; cheap enough for every call."""
        weight = self.sentinel
        return weight is not None and (weight._version != self.version or weight.data_ptr() != self.pointer)

    def changed(self) -> bool:
        """True when any weight, submodule or training flag is not what it was."""
        return (
            any(owner.get(name) is not tensor for owner, name, tensor in self._slots)
            or any(owner.get(name) is not child for owner, name, child in self._children)
            or any(_version(t) != version or t.data_ptr() != pointer for t, version, pointer in self._facts)
            or any(state["training"] is not flag for state, flag in self._training)
            or self._probes.changed()
        )

    def tell(self) -> None:
        """The weights changed: say so to the owner, if it is still there."""
        owner = self._on_change()
        if owner is not None:
            owner()


class _Probes:
    """A few elements of every tensor, kept by value: writes through .data leave no other trace."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            if tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel():
                groups.setdefault(tensor.dtype, []).append(_probe(tensor))
        self._groups = list(groups.values())
        self._values = [_bits(views) for views in self._groups]

    def changed(self) -> bool:
        return any(not torch.equal(_bits(v), value) for v, value in zip(self._groups, self._values, strict=True))


def _probe(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().as_strided((_extent(tensor),), (1,))
    return flat[:: max(1, flat.numel() // PROBES)]


def _extent(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _bits(views: list[torch.Tensor]) -> torch.Tensor:
    """As bytes, so that NaN equals itself."""
    with torch.no_grad():
        return torch.cat(views).view(torch.uint8)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _slots(module: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    for owner in (module._parameters, module._buffers):
        yield from ((owner, name, tensor) for name, tensor in owner.items() if tensor is not None)


# One set of public torch hooks for all watches of the process, there only while somebody watches.
_watches: weakref.WeakSet[WeightWatch] = weakref.WeakSet()
_handles: list[RemovableHandle] = []


def _watch(watch: WeightWatch) -> None:
    _watches.add(watch)
    if not _handles:
        _handles.extend(
            [
                register_optimizer_step_post_hook(_after_step),
                torch_module.register_module_parameter_registration_hook(_after_registration),
                torch_module.register_module_buffer_registration_hook(_after_registration),
                torch_module.register_module_module_registration_hook(_after_registration),
            ]
        )


def _live() -> list[WeightWatch]:
    watches = list(_watches)
    while not watches and _handles:
        _handles.pop().remove()
    return watches


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    updated = [id(p) for group in optimizer.param_groups for p in group["params"]]
    for watch in _live():
        if not watch.tensor_ids.isdisjoint(updated):
            watch.tell()


def _after_registration(module: nn.Module, name: str, value: Any) -> None:
    """Called before the assignment takes effect; an assignment of what is there already changes nothing."""
    owners = (module._parameters, module._buffers, module._modules)
    if any(value is not None and owner.get(name) is value for owner in owners):
        return
    for watch in _live():
        if any(id(owner) in watch.owner_ids for owner in owners):
            watch.tell()
