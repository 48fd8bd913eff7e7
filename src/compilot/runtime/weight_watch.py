"""Weights that were baked into a callable: notice when the model's own weights change.

In: the module whose weights were baked in. Out: `glance()` and `next_weights()` for every call, `changed_elsewhere()`
for now and then, `changed()` for everything at once, and a callback. Seen at the next call: load_state_dict, an
optimizer step, .to/.half/.cuda of the whole model, a parameter, buffer or submodule assigned again (LoRA),
torch.func.functional_call with all parameters. Each call looks at the next two weights (of a small model each eighth
call), so that an update of a single one (in place, through .data, a layer merged or converted) is seen when its turn
comes: within half as many calls as there are parameters and buffers (of a small model eight times that), and within 256
calls at most. Seen within 256 calls: whatever else there is, attributes, code and structure (code_watch.py). Everything
that has a version at every call: strict_weights.py. Not seen: writes through .data that touch none of the probed
elements; call `refresh()` after those.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from compilot.runtime.code_watch import CodeWatch

PROBES = 16  # elements per tensor that are compared by value
TOGETHER = 2  # weights that are looked at together: the versions of 60 alone take 6 microseconds, those of 200 18
SMALL = 64  # weights: calls of a model with more of them take long enough for a look in each one,
SMALL_EVERY = (
    8  # of a smaller one each eighth: a weight is out of the caches when its turn comes, which costs a microsecond
)
INSPECT_EVERY = 256  # calls between two looks at everything that has no turn of its own; a power of two
Look = tuple[torch.Tensor, int, int, memoryview, bytes]  # a weight, its version, its address, a part of it, its value
LOOK = 5  # items of one
_VERSION, _ADDRESS = attrgetter("_version"), torch.Tensor.data_ptr


class WeightWatch:
    """The state of a module's weights at one moment."""

    def __init__(
        self, model: nn.Module, on_change: Callable[[], None], left_out: Iterable[tuple[Any, str]] = ()
    ) -> None:
        """left_out: owners and names of attributes that may change."""
        self.code = CodeWatch(model, left_out)
        modules, owners = self.code.modules, self.code.owners
        tensors = {id(t): t for owner in owners for t in owner.values() if isinstance(t, torch.Tensor)}
        held = {id(t): t for t in self.code.attributes.tensors}
        every = [*(tensors | held).values()] or [torch.zeros(1)]  # no weights at all: one of ours, which stays
        self.tensors = [t for t in every if _has_facts(t)]
        self.without_version = [t for t in every if t.is_inference()]
        self.without_memory = [t for t in every if not t.is_inference() and not _has_facts(t)]
        self.versions, self.addresses = self._facts_now()
        parts = {id(t): _part(t) for t in every}
        self._parts = [*parts.values()]  # kept by value as well: writes through .data leave no other trace
        self._values = self._values_now()
        self._odd = _OddProbes([t for t in every if not parts[id(t)]])
        self.tensor_ids = set(tensors | held)
        self.owner_ids = {id(d) for m in modules for d in (m._parameters, m._buffers, m._modules)}
        self._on_change = weakref.WeakMethod(on_change)
        self.sentinel, self.version, self.pointer = self._choose([*model.parameters(), *model.buffers()] or every)
        self.home, self.key = self._home()
        looks = [_look(t, parts[id(t)]) for t in self.tensors]
        self.next_weights = itertools.cycle(_rows(looks)).__next__
        self.skip_bits = 0 if len(looks) >= SMALL else SMALL_EVERY - 1  # a look where the count has none of these bits
        turns = TOGETHER * INSPECT_EVERY // (self.skip_bits + 1)
        self._all_in_turn = len(looks) == len(every) <= turns
        # the storage is kept alive, so that a converted parameter can never come to lie at the same address
        self._kept = [] if self.sentinel is None else [self.sentinel.detach()]

    def begin(self) -> None:
        """From now on the owner is told of updates that torch tells about."""
        _watch(self)

    def _choose(self, tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, int, int]:
        """The last floating-point weight: every update of the whole model touches it."""
        usable = [t for t in tensors if _has_facts(t)]
        found = [t for t in usable if t.is_floating_point()] or usable
        found = [t for t in found if isinstance(t, nn.Parameter)] or found  # functional_call may leave buffers alone
        return (found[-1], found[-1]._version, found[-1].data_ptr()) if found else (None, 0, 0)

    def _home(self) -> tuple[dict[str, Any], str]:
        """Where the sentinel is held: another tensor may be put there for one call (torch.func.functional_call)."""
        held = ((owner, key) for owner in self.code.owners for key, value in owner.items() if value is self.sentinel)
        return next(held, ({"": self.sentinel}, ""))

    def _facts_now(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (*map(_VERSION, self.tensors), *map(_VERSION, self.without_memory)), (*map(_ADDRESS, self.tensors),)

    def _values_now(self) -> list[bytes]:
        return [*map(memoryview.tobytes, self._parts)]

    def glance(self) -> bool:
        """True when the watched weight changed, or one of those whose turn it is; cheap enough for every call."""
        weight = self.sentinel
        if weight is None:
            return False
        moved = weight._version != self.version or weight.data_ptr() != self.pointer
        if moved or self.home.get(self.key) is not weight:
            return True
        row = self.next_weights()
        return any(_is_other(row[i : i + LOOK]) for i in range(0, len(row), LOOK))

    def changed_elsewhere(self) -> bool:
        """The same as `changed`, without the weights that have their turn before the next look."""
        return self._rest_changed() or (not self._all_in_turn and self._weights_changed())

    def changed(self) -> bool:
        """True when any weight, submodule, training flag, attribute or method is not what it was."""
        return self._rest_changed() or self._weights_changed()

    def _rest_changed(self) -> bool:
        return self.code.changed() or self._odd.changed()

    def _weights_changed(self) -> bool:
        return self._facts_now() != (self.versions, self.addresses) or self._values_now() != self._values

    def running(self, run: Callable[[], Any]) -> Any:
        """Run the model itself; attributes that it changes by that are not watched any more."""
        return self.code.running(run)

    def which(self) -> list[str]:
        """The names of attributes and methods that are not what they were."""
        return self.code.which()

    def tell(self) -> None:
        """The weights changed: say so to the owner, if it is still there."""
        owner = self._on_change()
        if owner is not None:
            owner()


class _OddProbes:
    """Parts of tensors without plain memory, such as conjugate views: torch reads them."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in filter(_is_dense, tensors):
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


def _rows(looks: list[Look]) -> list[tuple[Any, ...]]:
    """Every weight in turn, two at a time; the last of an odd number is looked at with the first."""
    return [(*looks[i], *looks[(i + 1) % len(looks)]) for i in range(0, len(looks), TOGETHER)]


def _look(tensor: torch.Tensor, part: memoryview) -> Look:
    """What is compared of one weight when its turn comes. The address comes before the part: it may have moved away."""
    return tensor, tensor._version, tensor.data_ptr(), part, part.tobytes()


def _part(tensor: torch.Tensor) -> memoryview:
    """The middle of a tensor, as bytes; none of one that cannot be read from here."""
    if _is_dense(tensor):
        with contextlib.suppress(RuntimeError, TypeError):  # conjugate views and other kinds without plain memory
            return _probe(tensor).view(torch.uint8).numpy().data
    return memoryview(b"")


def _has_facts(tensor: torch.Tensor) -> bool:
    """Whether it has a version, which inference tensors have not, and an address, which sparse ones have not."""
    if tensor.is_inference():
        return False
    try:
        tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel() > 0


def _is_other(look: Sequence[Any]) -> bool:
    weight, version, pointer, part, value = look
    return bool(weight._version != version or weight.data_ptr() != pointer or part.tobytes() != value)


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
                register_optimizer_step_post_hook(after_step),
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


def after_step(optimizer: torch.optim.Optimizer, args: Any = (), kwargs: Any = None) -> None:
    """A step has moved this optimizer's parameters; torch calls it, and whoever moves them without `step`."""
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
