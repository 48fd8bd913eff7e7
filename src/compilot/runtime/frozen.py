"""Weights that were baked into a callable: notice when the model's own weights change.

In: the module whose weights were baked in. Out: `glance()` and `few()` for every call, `changed()` for now and then,
and a callback. Seen at the next call: load_state_dict, an optimizer step, .to/.half/.cuda of the whole model, a
parameter, buffer or submodule assigned anew (LoRA), torch.func.functional_call with all parameters. Each call looks at
the next two weights (of a small model each eighth call), so that an update of a single one (in place, through .data, a
layer merged or converted) is seen when its turn comes: within half as many calls as there are parameters and buffers
(of a small model eight times that). Seen within 256 calls: whatever else there is, train/eval of submodules, tensors
and plain values that are attributes (attributes.py). Not seen: writes through .data that touch none of the probed
elements; call `refresh()` after those.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from compilot.runtime.attributes import Attributes

PROBES = 16  # elements per tensor that are compared by value in a full look
FEW = 2  # weights that are looked at together: the versions of 60 alone take 6 microseconds, those of 200 18
SMALL = 64  # weights: calls of a model with more of them take long enough for a look in each one,
SELDOM = 8  # of a smaller one each eighth: a weight is out of the caches when its turn comes, which costs a microsecond
Look = tuple[torch.Tensor, int, int, Sequence[int], int]  # a weight, its version, its address, a part of it, its value
LOOK = 5  # items of one


class WeightWatch:
    """The state of a module's weights at one moment."""

    def __init__(self, model: nn.Module, on_change: Callable[[], None]) -> None:
        modules = list(model.modules())
        self._owners = [owner for m in modules for owner in (m._parameters, m._buffers, m._modules) if owner]
        self._states = [m.__dict__ for m in modules]
        tensors = {id(t): t for owner in self._owners for t in owner.values() if isinstance(t, torch.Tensor)}
        self.attributes = Attributes(modules)
        held = {id(t): t for t in self.attributes.tensors}
        every = [*(tensors | held).values()] or [torch.zeros(1)]  # no weights at all: one of ours, which stays
        self._tensors = [t for t in every if not t.is_inference()]  # inference tensors have no version
        self._kept = [self._owners_now(), list(modules)]  # objects stay alive, so that no id is given twice
        self._ids = self._identities()
        self._facts = self._facts_now()
        self._probes = _Probes(every)
        self.tensor_ids = set(tensors | held)
        self.owner_ids = {id(d) for m in modules for d in (m._parameters, m._buffers, m._modules)}
        self._on_change = weakref.WeakMethod(on_change)
        self.sentinel, self.version, self.pointer = self._choose([*tensors.values()] or every)
        self.home, self.key = self._home()
        self.few = itertools.cycle([(*_look(a), *_look(b)) for a, b in _pairs(self._tensors)]).__next__
        self.pace = 0 if len(self._tensors) >= SMALL else SELDOM - 1  # a look where the count has none of these bits
        # the storage is kept alive, so that a converted parameter can never come to lie at the same address
        self._kept.append([] if self.sentinel is None else [self.sentinel.detach()])

    def begin(self) -> None:
        """From now on the owner is told of updates that torch tells about."""
        _watch(self)

    def _choose(self, tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, int, int]:
        """The last floating-point weight: every update of the whole model touches it."""
        usable = [t for t in tensors if not t.is_inference()]
        found = [t for t in usable if t.is_floating_point()] or usable
        found = [t for t in found if isinstance(t, nn.Parameter)] or found  # functional_call may leave buffers alone
        return (found[-1], found[-1]._version, found[-1].data_ptr()) if found else (None, 0, 0)

    def _home(self) -> tuple[dict[str, Any], str]:
        """Where the sentinel is held: another tensor may be put there for one call (torch.func.functional_call)."""
        held = ((owner, key) for owner in self._owners for key, value in owner.items() if value is self.sentinel)
        return next(held, ({"": self.sentinel}, ""))

    def _owners_now(self) -> list[Any]:
        return [value for owner in self._owners for value in owner.values()]

    def _identities(self) -> list[int]:
        return [*map(id, self._owners_now())]

    def _facts_now(self) -> tuple[list[int], list[int], list[bool]]:
        versions = [t._version for t in self._tensors]
        return versions, [t.data_ptr() for t in self._tensors], [state["training"] for state in self._states]

    def glance(self) -> bool:
        """True when the watched weight changed, or one of those whose turn it is; cheap enough for every call."""
        weight = self.sentinel
        if weight is None:
            return False
        moved = weight._version != self.version or weight.data_ptr() != self.pointer
        if moved or self.home.get(self.key) is not weight:
            return True
        row = self.few()
        return any(_is_other(row[i : i + LOOK]) for i in range(0, len(row), LOOK))

    def changed(self) -> bool:
        """True when any weight, submodule, training flag or attribute is not what it was."""
        if self._identities() != self._ids or self._facts_now() != self._facts:
            return True
        return self._probes.changed() or self.attributes.changed()

    def running(self, run: Callable[[], Any]) -> Any:
        """Run the model itself; attributes that it changes by that are not watched any more."""
        before = self.attributes.look()
        try:
            return run()
        finally:
            self.attributes.forgive(before)

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
    """Neighbours from the middle of the memory: joining contiguous pieces is six times cheaper than scattered ones."""
    flat = tensor.detach().as_strided((_extent(tensor),), (1,))
    middle = max(0, (flat.numel() - PROBES) // 2)
    return flat[middle : middle + PROBES]


def _pairs(weights: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every weight in turn, two at a time; the last of an odd number is looked at with the first."""
    return [(weights[i], weights[(i + 1) % len(weights)]) for i in range(0, len(weights), FEW)]


def _look(tensor: torch.Tensor) -> Look:
    """What is compared of one weight when its turn comes. The address comes before the part: it may have moved away."""
    part = _part(tensor)
    return tensor, tensor._version, tensor.data_ptr(), part, part[0]


def _part(tensor: torch.Tensor) -> Sequence[int]:
    """The middle of a weight, as numbers; a zero stands for one that cannot be read from here."""
    if tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel():
        with contextlib.suppress(RuntimeError, TypeError):  # conjugate views and other kinds without plain memory
            return _words(_probe(tensor).view(torch.uint8).numpy().data)
    return (0,)


def _words(data: memoryview[int]) -> memoryview[int]:
    """Bytes as the largest numbers that they make up."""
    if data.nbytes % 8 == 0:
        return data.cast("Q")
    if data.nbytes % 4 == 0:
        return data.cast("I")
    return data.cast("H") if data.nbytes % 2 == 0 else data


def _is_other(look: Sequence[Any]) -> bool:
    weight, version, pointer, part, value = look
    return bool(weight._version != version or weight.data_ptr() != pointer or part[0] != value)


def _extent(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _bits(views: list[torch.Tensor]) -> torch.Tensor:
    """As bytes, so that NaN equals itself."""
    with torch.no_grad():
        return torch.cat(views).view(torch.uint8)


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
