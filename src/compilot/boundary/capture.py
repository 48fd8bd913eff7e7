"""The call of each submodule of a region, with the guard that takes it.

In: a model, its example call, the sizes that vary, the submodules of the regions. Out: of each submodule its call in
the example, and its guard. The model answers the example, and calls at other declared sizes where a region shall take
them: so it is known which sizes inside of the model vary, and how far. It runs as a clone: what it keeps in attributes
stays there. Inputs are kept as they were when the submodule was called, whatever is written into them later.
Infeasible, with the submodule's path: one that the example never calls, or calls in ways that no one guard takes
(weights that several places share, at other sizes; a number that follows a size), inputs that cannot be guarded, and
for engines that need ranges sizes that cannot be told. Sizes on which eager raises are left out. Not covered:
submodules whose `forward` is called directly, which run no hooks either; they are never called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import Call, map_call
from compilot.boundary.merging import Differs, Unknown, alike, at_any_size, merged
from compilot.boundary.observing import At, Recorder, calls_at, kept, objects_in, only_answered
from compilot.engines.protocol import Infeasible
from compilot.errors import first_cause
from compilot.inputs.resizing import Ranges
from compilot.modules.clone import clone_around, structural_clone
from compilot.modules.regions import Place
from compilot.modules.selectors import blamed
from compilot.records import Guard, Shapes
from compilot.runtime.regions import stand_in


class Captured(NamedTuple):
    """One call of a submodule."""

    call: Call
    guard: Guard


class Opaque(Exception):
    """An input that is an object, of which an engine would not see when it changes."""


class Takes(NamedTuple):
    """What the guard of a submodule is to take."""

    shapes: Shapes = Shapes.STATIC
    ranges: bool = False  # its engine needs to know how far sizes vary
    objects: bool = False  # its engine looks by itself into inputs that are no tensors and no plain values


def captured(
    model: nn.Module, call: Call, places: Sequence[Place], takes: Mapping[str, Takes], ranges: Ranges, *, grad: bool
) -> dict[str, Captured]:
    """The call of each submodule, by path. ranges: the declared sizes of the model's own inputs."""
    dynamic = any(one.shapes is Shapes.DYNAMIC for one in takes.values())
    with torch.set_grad_enabled(grad), torch.random.fork_rng():
        example, *others = calls_at(call, ranges if dynamic else {})
        recorders, run = _recorded(structural_clone(model), places)
        try:
            run(example)
        except Infeasible:  # code that knows the model by other ways than its attributes runs in the model only
            recorders, run = _recorded(model, places)
            run(example)
        for other in others:
            with contextlib.suppress(Infeasible), only_answered(recorders.values()):
                run(other)
    return {path: _found(path, recorder, takes[path]) for path, recorder in recorders.items()}


def _recorded(model: nn.Module, places: Sequence[Place]) -> tuple[dict[str, Recorder], Callable[[At], None]]:
    """Recorders of the submodules, by path, and what runs the model for them."""
    modules = {place.path: model.get_submodule(place.path) for place in places}
    recorders = {path: Recorder(module) for path, module in modules.items()}
    now: list[tuple[int, ...]] = [()]
    entries = {id(module): stand_in(module, _entry(module, recorders[path], now)) for path, module in modules.items()}
    whole = clone_around(model, entries)

    def run(at: At) -> None:
        now[0] = at.sizes
        given = map_call(at.call, lambda path, leaf: kept(leaf, path) if isinstance(leaf, torch.Tensor) else leaf)
        try:
            whole(*given.args, **given.kwargs)
        except Exception as error:
            raise Infeasible(f"the model cannot be run in parts: {first_cause(error)}") from error

    return recorders, run


def _entry(module: nn.Module, recorder: Recorder, now: Sequence[tuple[int, ...]]) -> Callable[..., Any]:
    """What stands in for the submodule's `__call__`."""

    def call(_self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        recorder.look(Call(args, kwargs), now[0])
        return module(*args, **kwargs)

    return call


def _found(path: str, recorder: Recorder, takes: Takes) -> Captured:
    """The call and its guard; Infeasible where there is none."""
    if recorder.problem:
        raise Infeasible(blamed(path, recorder.problem))
    if recorder.first is None:
        raise Infeasible(blamed(path, "the example call never calls it"))
    try:
        return Captured(recorder.first, guard_of(recorder, takes))
    except (Differs, Unknown, Opaque) as error:
        raise Infeasible(blamed(path, str(error))) from error


def guard_of(recorder: Recorder, takes: Takes) -> Guard:
    """One guard for what was seen of a submodule.

    Differs: there is none. Unknown: ranges are needed, and not known. Opaque: there are objects that it cannot take.
    """
    sizes = [one.sizes for one in recorder.seen]
    if (found := objects_in(recorder.seen[0].guard)) and not takes.objects:
        what = f"input {found[0].path} is a {found[0].type.rpartition('.')[2]}, which may change between calls"
        raise Opaque(f"{what}; call the model without it (Hugging Face: use_cache=False)")
    if takes.shapes is Shapes.STATIC:
        return alike([one.guard for one in recorder.seen if one.sizes == sizes[0]])
    if not sizes[0]:
        return at_any_size([one.guard for one in recorder.seen])
    try:
        if len({*sizes}) == 1:
            raise Unknown("the model answers at no other declared size, so those inside of it are not known")
        return merged(recorder.seen)
    except Unknown:
        if takes.ranges:
            raise
        return at_any_size([one.guard for one in recorder.seen])
