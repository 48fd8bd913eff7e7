"""Regions: a model of which parts run by engines of their own, and the rest as it is.

In: the user's model, a candidate with regions, its files. Out: a Loaded, like that of any engine: its callable is a
clone of the model around the regions' submodules, in which objects of subclasses of their own classes answer their
calls. Each of these has a guard of its own, made from its call in the example; what that does not take, and what its
engine cannot prepare or answer, goes to that submodule's eager alone, counted by path with the reason. Weights,
attributes and hooks are the model's own: nothing is copied but modules around regions, whose attributes the gate
watches, as it does the code of everything. Covered: submodules that are alike share a program where their engine can.
Not covered: making the files (boundary/), the model's own guard (dispatch.py), the rest in another engine than eager.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch import nn

from compilot.engines import registry
from compilot.engines.baked import OtherWeights
from compilot.engines.files import artifact_path
from compilot.engines.protocol import Alike, Baked, Follows, Infeasible, Loaded, LoadRequest
from compilot.errors import InputError
from compilot.modules.clone import alias, clone_around
from compilot.modules.likeness import likeness
from compilot.modules.regions import Place, placed
from compilot.modules.selectors import blamed
from compilot.records import Candidate, Region, RegionPart, Settings
from compilot.runtime.dispatch import Dispatcher

REGIONS_FILE = "regions.json"
_EARLIEST = (Baked.AT_BUILD, Baked.AT_LOAD)


def refusal(candidate: Candidate) -> str | None:
    """Why a candidate's regions cannot be run; None: they can."""
    rest = candidate.settings
    if rest != Settings(shapes=rest.shapes):
        return f"the model outside of regions runs in eager, not with other settings of {rest.engine}"
    idle = [region.selector for region in candidate.regions if region.settings == Settings()]
    return f"the region '{idle[0]}' runs in plain eager, as the rest does: leave it out" if idle else None


def load_regions(request: LoadRequest, candidate: Candidate) -> Loaded:
    """The model run in parts; request: of the whole model."""
    if problem := refusal(candidate):
        raise Infeasible(problem)
    parts = _parts(request, candidate.regions)
    doors = {part.place.path: _door(part) for part in parts}
    whole = _clone(request, [part.place for part in parts], doors)
    every = [door.loaded for door in doors.values()]
    frozen = [loaded for loaded in every if loaded.frozen_weights]
    return Loaded(
        call=whole,
        frozen_weights=bool(frozen),
        builds=lambda: sum(door.stats().compiles for door in doors.values()),
        # the modules around regions are read now, so even with weights that are read later this is the moment
        baked=next((when for when in _EARLIEST if any(one.baked is when for one in frozen)), Baked.AT_LOAD),
        weights_sha256=_digest({path: door.loaded for path, door in doors.items()}),
        follows=Follows.NOTHING,
        parts=doors,
    )


def read_parts(folder: Path | None) -> tuple[RegionPart, ...]:
    """What the build wrote down of each submodule."""
    path = artifact_path(folder, REGIONS_FILE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[RegionPart, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Infeasible(f"{REGIONS_FILE} is damaged ({error}); run 'compilot tune' again") from error


class _Part(NamedTuple):
    """One submodule, and what its engine is asked for."""

    place: Place
    request: LoadRequest


def _parts(request: LoadRequest, regions: Sequence[Region]) -> list[_Part]:
    """The submodules that the regions name; those that are alike, and called alike, know of each other."""
    known: dict[int, str] = {}
    groups: dict[Hashable, list[nn.Module]] = {}
    parts = []
    for place, built in _matched(request, regions):
        alike = groups.setdefault((place.region, likeness(place.module, known), built.guard.tensors), [])
        alike.append(place.module)
        parts.append((place, built, alike))
    shared = {id(modules): Alike(modules) for modules in groups.values()}
    return [
        _Part(place, _request(request, place, built, regions[place.region].settings, shared[id(alike)]))
        for place, built, alike in parts
    ]


def _matched(request: LoadRequest, regions: Sequence[Region]) -> list[tuple[Place, RegionPart]]:
    """The submodules that the regions name, each with what was built for it."""
    built = {(part.region, part.path): part for part in read_parts(request.artifacts)}
    try:
        places = placed(request.model, regions)
    except InputError as error:
        raise Infeasible(str(error).rstrip(".")) from error
    if built.keys() != {(place.region, place.path) for place in places}:
        raise Infeasible(f"{REGIONS_FILE} is about other submodules than the plan's regions; run 'compilot tune' again")
    return [(place, built[place.region, place.path]) for place in places]


def _request(whole: LoadRequest, place: Place, built: RegionPart, settings: Settings, alike: Alike) -> LoadRequest:
    assert whole.artifacts is not None  # what was built is said there
    return LoadRequest(place.module, built.guard, settings, whole.artifacts / built.folder, alike=alike)


def _door(part: _Part) -> Dispatcher:
    """What answers the submodule's calls."""
    place, request = part
    half = registry.load_half(request.settings.engine)
    try:
        return Dispatcher(place.module, request.guard, lambda: half.load(request), part=place.path)
    except OtherWeights as error:
        raise OtherWeights(blamed(place.path, str(error))) from error
    except Infeasible as error:
        raise Infeasible(blamed(place.path, str(error))) from error


def _clone(request: LoadRequest, places: Sequence[Place], doors: Mapping[str, Dispatcher]) -> nn.Module:
    """The model with the doors in place of the submodules' own calls.

    In the mode of the guard: only in that mode is it called, and the modules around regions do not follow the model's.
    """
    model = request.model
    whole = clone_around(model, {id(one.module): stand_in(one.module, doors[one.path].call) for one in places})
    if model.training != request.guard.training:
        own = {id(vars(module)) for module in model.modules()}
        for module in whole.modules():
            if id(vars(module)) not in own:
                module.training = request.guard.training
    return whole


def stand_in(module: nn.Module, call: Callable[..., Any]) -> nn.Module:
    """Another object over the submodule's own attributes, of a subclass with this `__call__`."""
    kind = type(module)
    body = {
        "__call__": call,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    metaclass: Any = type(kind)
    return alias(module, metaclass(kind.__name__, (kind,), body))


def _digest(loaded: Mapping[str, Loaded]) -> str | None:
    """Of the weights in all files together; None: there are none, or an engine left it to the runtime to compare."""
    known = {path: one.weights_sha256 for path, one in loaded.items() if one.in_files}
    if not known or None in known.values():
        return None
    return hashlib.sha256("".join(f"{path} {digest}\n" for path, digest in known.items()).encode()).hexdigest()
