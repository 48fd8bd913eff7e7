"""A candidate's files, whether it runs the whole model with one engine or regions of it with several.

In: a BuildRequest of the whole model. Out: every file that the engines made, named from the candidate's folder, and
`regions.json`, which says what was built for which submodule. Each submodule is built from its own call in the example
and for the sizes that it has at the declared ones (capture.py), by its engine's ordinary build half, into a folder of
its own; engines that keep a compile cache share the candidate's. Infeasible names the submodule. Not covered: which
regions to try (candidates/).
"""

from __future__ import annotations

import msgspec

from compilot.boundary.capture import Captured, Takes, captured
from compilot.boundary.observing import declared
from compilot.engines import registry
from compilot.engines.files import artifact_files
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.shared_forms import SharedForms
from compilot.errors import InputError
from compilot.files import atomic
from compilot.modules.regions import Place, placed
from compilot.modules.selectors import blamed, folder_of
from compilot.records import ArtifactFile, Candidate, RegionPart, Settings, encode
from compilot.runtime.regions import REGIONS_FILE, refusal


def build(request: BuildRequest) -> tuple[ArtifactFile, ...]:
    """Have the engines make what the candidate needs."""
    candidate = request.candidate
    if not candidate.regions:
        return tuple(registry.build_half(candidate.settings.engine).build(request))
    if problem := refusal(candidate):
        raise Infeasible(problem)
    places = _places(request)
    takes = {place.path: _takes(candidate.regions[place.region].settings) for place in places}
    sizes, grad = declared(request.guard), request.guard.grad_enabled
    calls = captured(request.model, request.call, places, takes, sizes, grad=grad)
    parts: list[RegionPart] = []
    files: list[ArtifactFile] = []
    for number, place in enumerate(places):
        part = _part(request, number, place, calls[place.path])
        files += _built(request, place, part, calls[place.path])
        parts.append(part)
    atomic.write_bytes(request.workspace / REGIONS_FILE, msgspec.json.format(encode(parts), indent=1) + b"\n")
    return (*files, *artifact_files(request.workspace, [REGIONS_FILE]))


def _places(request: BuildRequest) -> tuple[Place, ...]:
    try:
        return placed(request.model, request.candidate.regions)
    except InputError as error:
        raise Infeasible(str(error).rstrip(".")) from error


def _takes(settings: Settings) -> Takes:
    """What an engine takes: torch.compile has guards of its own for what is in an object."""
    traits = registry.traits(settings.engine)
    return Takes(settings.shapes, ranges=traits.whole_graph, objects=traits.through_dynamo)


def _part(request: BuildRequest, number: int, place: Place, found: Captured) -> RegionPart:
    engine = request.candidate.regions[place.region].settings.engine
    folder = "" if registry.traits(engine).cache_folder else f"{folder_of(place.region)}/{number}"
    return RegionPart(region=place.region, path=place.path, guard=found.guard, folder=folder)


def _built(request: BuildRequest, place: Place, part: RegionPart, found: Captured) -> list[ArtifactFile]:
    """One submodule's files, named from the candidate's folder."""
    whole, region = request.candidate, request.candidate.regions[place.region]
    candidate = Candidate(settings=region.settings, label=place.path, rationale="", process=whole.process)
    workspace = request.workspace / part.folder
    workspace.mkdir(mode=0o755, parents=True, exist_ok=True)  # no umask lets others change what will be loaded
    own = BuildRequest(place.module, found.call, part.guard, candidate, workspace, _forms(request, place.path))
    try:
        made = registry.build_half(region.settings.engine).build(own)
    except Infeasible as error:
        raise Infeasible(blamed(place.path, str(error))) from error
    inner = f"{part.folder}/" if part.folder else ""
    return [msgspec.structs.replace(file, name=inner + file.name) for file in made]


def _forms(request: BuildRequest, path: str) -> SharedForms | None:
    """Forms of this submodule: a guard alone does not tell it from another."""
    return None if request.shared is None else request.shared.of(path)
