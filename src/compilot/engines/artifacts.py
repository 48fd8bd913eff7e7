"""What loading is for every engine that comes as files: find them, refuse other weights, put the call together.

In: a LoadRequest. Out: the engine's file and the Structure beside it, then a Loaded. Not covered: what the engine does
with its file in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compilot.engines import structure as structures
from compilot.engines.baked import refuse_other_weights
from compilot.engines.files import artifact_path
from compilot.engines.marshal import make_call, no_builds
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.structure import Structure


class OpenedFiles(NamedTuple):
    """The engine's main file, and what stands around it."""

    path: Path
    structure: Structure


def opened(request: LoadRequest, name: str) -> OpenedFiles:
    """The files of a candidate, made from the very weights that the model has."""
    path = artifact_path(request.artifacts, name)
    structure = structures.read(path.parent)
    refuse_other_weights(request, structure.weights_sha256)
    return OpenedFiles(path, structure)


def served(
    request: LoadRequest,
    structure: Structure,
    lines: Sequence[str],
    namespace: dict[str, Any],
    *,
    concurrent: bool = True,
) -> Loaded:
    """The callable around an engine's own lines; the model itself is not needed any more."""
    call = make_call(request, structure, lines, namespace)
    return Loaded(
        call=call,
        frozen_weights=True,
        concurrent=concurrent,
        needs_model=False,
        builds=no_builds,
        weights_sha256=structure.weights_sha256,
    )
