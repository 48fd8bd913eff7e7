"""AOTInductor, tuning plane: compile the exported model into a library of native code.

In: a BuildRequest. Out: `model-*.so` and `structure.json`, or Infeasible. Needs the C++ compiler; the result does not.
Options are torch's own (compiler_knobs.py). The memory format channels_last converts weights and images
once, inside the library. The thread count of this process is baked into the code, as Inductor does it. Compiler
leftovers are removed. Not covered: GPUs.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from compilot._torch import aoti, compiling
from compilot.engines import compiler_knobs, vector_probes
from compilot.engines import structure as structures
from compilot.engines.compiler_knobs import MAX_AUTOTUNE
from compilot.engines.compiler_options import torchs_own
from compilot.engines.exporting import export
from compilot.engines.files import artifact_files
from compilot.engines.needs import misfit, not_for_exports
from compilot.engines.protocol import Availability, BuildRequest, Infeasible
from compilot.engines.quiet import no_prints
from compilot.engines.rewriting import remainder_from_fmod, rewrite
from compilot.engines.space import CHANNELS_LAST, Seed, Space, options_of
from compilot.engines.whereabouts import cause
from compilot.records import ArtifactFile, Candidate, Diagnosis, MemoryFormat, Settings

REWRITTEN = {"remainder": remainder_from_fmod}  # its own loses the digits where the quotient is large
KNOBS = (*compiler_knobs.SHARED, CHANNELS_LAST)
_LAST = {"memory_format": MemoryFormat.CHANNELS_LAST}
_WHY_LAST = "convolutions on channels-last memory from end to end"
SEEDS = (
    Seed("freezing", "native code without Python glue, weights prepacked", {"freezing": True}),
    Seed("freezing + channels_last", _WHY_LAST, {"freezing": True, **_LAST}),
    Seed("channels_last", f"{_WHY_LAST}, weights as they are", _LAST),
    Seed("freezing + max_autotune", MAX_AUTOTUNE.why, {"freezing": True, "max_autotune": True}),
    Seed("", "native code without Python glue: starts in milliseconds"),
)


def available() -> Availability:
    """Part of torch; whether its C++ compiler works is found out by trying (diagnosis.compiler_problem)."""
    return Availability(ok=True, version=metadata.version("torch"))


def space(diagnosis: Diagnosis) -> Space:
    """Prepacked weights first: on ResNet-18 they halve the time of the plain package."""
    return Space() if not_for_exports(diagnosis) else Space(KNOBS, SEEDS)


def validate(settings: Settings) -> str | None:
    """Only the knobs above."""
    return misfit(settings, options_of(KNOBS), layouts=True)


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Export, compile and save."""
    if problem := validate(request.candidate.settings):
        raise Infeasible(problem)
    exported = export(request, keep_strides=True)
    with torch.no_grad(), no_prints(), _leftovers_removed(request.workspace):
        program = rewrite(exported.program, REWRITTEN)
        try:
            settings = request.candidate.settings
            names = aoti.compile_library(program, request.workspace, _configs(settings))
        except Exception as error:
            raise Infeasible(f"AOTInductor cannot compile the model: {cause(error, exported.program)}") from error
    structures.write(exported.structure, request.workspace)
    return artifact_files(request.workspace, (*names, structures.FILE_NAME))


def below_the_code(candidate: Candidate) -> str:
    """The settings that can change the program without changing its generated code."""
    settings = candidate.settings
    options = {name: value for name, value in settings.options.items() if name not in compiler_knobs.SHOWN_IN_CODE}
    return repr((sorted(options.items()), settings.memory_format.value, candidate.process))


def _configs(settings: Settings) -> dict[str, Any]:
    configs = torchs_own(settings.options)
    if not compiling.trusts_vector_isa():
        configs["cpp.vec_isa_ok"] = True  # skips probe builds of every vector extension: 6 s
    return configs


@contextlib.contextmanager
def _leftovers_removed(workspace: Path) -> Iterator[None]:
    """Generated code and object files in a folder of their own, gone afterwards: only the library is the artifact."""
    with (
        tempfile.TemporaryDirectory(dir=workspace, prefix="aoti-", ignore_cleanup_errors=True) as folder,
        vector_probes.cache_directory(Path(folder)),
    ):
        yield
