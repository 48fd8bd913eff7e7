"""The smallest engine that makes files: the exported program itself, run by torch. Both halves in one module."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from compilot.engines import structure as structures
from compilot.engines.baked import refuse_other_weights
from compilot.engines.exporting import export
from compilot.engines.files import artifact_files, artifact_path
from compilot.engines.marshal import make_call, names_of
from compilot.engines.needs import not_for_exports, unknown_options
from compilot.engines.protocol import Availability, BuildRequest, Infeasible, Loaded, LoadRequest
from compilot.engines.space import Seed, Space
from compilot.engines.traits import EngineTraits
from compilot.records import ArtifactFile, Diagnosis, Settings

MODEL_NAME = "program.pt2"
TRAITS = EngineTraits(version="1")


def available() -> Availability:
    return Availability(ok=True, version="1")


def space(diagnosis: Diagnosis) -> Space:
    return Space() if not_for_exports(diagnosis) else Space(seeds=(Seed("", "for tests"),))


def validate(settings: Settings) -> str | None:
    return "fake has no modes" if settings.mode else unknown_options("fake", settings, {})


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    exported = export(request)
    torch.save(exported.program.state_dict, request.workspace / MODEL_NAME)
    programs[exported.structure.weights_sha256] = exported.program
    structures.write(exported.structure, request.workspace)
    return artifact_files(request.workspace, (MODEL_NAME, structures.FILE_NAME))


programs: dict[str, Any] = {}  # by weights, graphs of this process: saving them would need torch.export at load


def load(request: LoadRequest) -> Loaded:
    path = artifact_path(request.artifacts, MODEL_NAME)
    structure = structures.read(path.parent)
    refuse_other_weights(request, structure.weights_sha256)
    try:
        torch.load(path)
    except Exception as error:
        raise Infeasible("damaged") from error
    program = programs[structure.weights_sha256]
    names = names_of(structure)
    lines = [f"{', '.join(names.outputs)}, = _run({', '.join(names.inputs)})"]
    run = _clean(program.module())
    return Loaded(
        call=make_call(request, structure, lines, {"_run": run}),
        frozen_weights=True,
        needs_model=False,
    )


def _clean(run: Any) -> Any:
    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [tensor.clone() for tensor in run(*tensors)]

    return call
