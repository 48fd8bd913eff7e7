"""Calls of submodules, as they are made inside one call of the model.

In: a model, its example call, the submodules of the regions. Out: of each submodule its call, with the guard that takes
it. The model answers the example once, as it is; inputs are kept as they were when the submodule was called, whatever
is written into them later. Infeasible, with the submodule's path: one that the example never calls, or calls in ways
that no one guard takes (weights that several places share, at other sizes), or with inputs that cannot be guarded. Not
covered: submodules whose `forward` is called directly, which run no hooks either; they are never called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import Call, map_call
from compilot.engines.protocol import Infeasible
from compilot.errors import InputError, first_cause
from compilot.modules.clone import clone_around
from compilot.modules.regions import Place
from compilot.modules.selectors import blamed
from compilot.records import Guard, Shapes
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher
from compilot.runtime.regions import stand_in


class Captured(NamedTuple):
    """One call of a submodule."""

    call: Call
    guard: Guard


def captured(
    model: nn.Module, call: Call, places: Sequence[Place], shapes: Mapping[str, Shapes], *, grad: bool
) -> dict[str, Captured]:
    """The call of each submodule, by path. shapes: what its guard may assume of sizes, by path."""
    recorders = {place.path: _Recorder(place, shapes[place.path]) for place in places}
    stand_ins = {id(place.module): stand_in(place.module, recorders[place.path].entry()) for place in places}
    given = map_call(call, lambda _, leaf: _kept(leaf) if isinstance(leaf, torch.Tensor) else leaf)
    with torch.set_grad_enabled(grad), torch.random.fork_rng():
        _run(clone_around(model, stand_ins), given)
    return {path: recorder.found() for path, recorder in recorders.items()}


def _run(model: nn.Module, call: Call) -> None:
    try:
        model(*call.args, **call.kwargs)
    except Infeasible:
        raise
    except Exception as error:
        raise Infeasible(f"the model cannot be run in parts: {first_cause(error)}") from error


class _Recorder:
    """Keeps the first call of one submodule; others must be like it."""

    def __init__(self, place: Place, shapes: Shapes) -> None:
        self._place = place
        self._shapes = shapes
        self._kept: Captured | None = None

    def entry(self) -> Any:
        """What stands in for the submodule's `__call__`."""

        def call(_self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            self._look(Call(args, kwargs))
            return self._place.module(*args, **kwargs)

        return call

    def found(self) -> Captured:
        """The call; Infeasible where there was none."""
        if self._kept is None:
            raise Infeasible(blamed(self._place.path, "the example call never calls it"))
        return self._kept

    def _look(self, call: Call) -> None:
        if self._kept is None:
            self._kept = self._first(call)
            return
        matcher = Matcher(self._kept.guard)
        if why := matcher.mode_mismatch(self._place.module.training) or matcher.call_mismatch(call):
            text = f"it is called in several ways within one call of the model, and one guard takes one: {why}"
            raise Infeasible(blamed(self._place.path, text))

    def _first(self, call: Call) -> Captured:
        grad = torch.is_grad_enabled()
        try:
            guard = make_guard(self._place.module, call, dynamic=(), shapes=self._shapes, grad=grad)
        except InputError as error:
            raise Infeasible(blamed(self._place.path, str(error).rstrip("."))) from error
        return Captured(map_call(call, lambda _, leaf: _kept(leaf) if isinstance(leaf, torch.Tensor) else leaf), guard)


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same sizes and strides, expanded dimensions included."""
    source = tensor.detach()
    memory = source.untyped_storage().clone()  # type: ignore[no-untyped-call]
    copy = torch.empty(0, dtype=source.dtype, device=source.device)
    copy.set_(memory, source.storage_offset(), source.shape, source.stride())
    return copy.requires_grad_(tensor.requires_grad)
