"""CUDA graphs, tuning plane: offered only where the inputs are on a GPU. Unproven: written without a GPU at hand.

In: a diagnosis. Out: a space of one point. The recording is made at the first call (load.py), nothing is kept in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from compilot.engines.needs import cuda_problem, misfit
from compilot.engines.protocol import Availability, BuildRequest
from compilot.engines.space import Seed, Space
from compilot.records import ArtifactFile, Diagnosis, Settings, Shapes


def available() -> Availability:
    """Part of torch; needs a GPU."""
    why = cuda_problem()
    return Availability(ok=not why, version=metadata.version("torch"), why=why)


def space(diagnosis: Diagnosis) -> Space:
    """For fixed shapes on a GPU, without training: a recording has fixed addresses and no gradients."""
    if not diagnosis.cuda or diagnosis.dynamic or diagnosis.training or diagnosis.unjudgeable:
        return Space()
    return Space(seeds=(Seed("", "the GPU's work is recorded once and replayed: no launch overhead, and no compile"),))


def validate(settings: Settings) -> str | None:
    """There is nothing to choose."""
    if settings.shapes is not Shapes.STATIC:
        return "cudagraphs replays one shape; declare no dynamic dimensions"
    return misfit(settings, {})


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing ahead of the first call."""
    return ()
