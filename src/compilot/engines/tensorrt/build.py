"""TensorRT, tuning plane: offered only where the inputs are on a GPU. Unproven: written without a GPU at hand.

In: a diagnosis. Out: a space of one point. torch_tensorrt is a torch.compile backend: it builds on use (load.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.engines.needs import cuda_problem, installed, misfit
from compilot.engines.protocol import Availability, BuildRequest
from compilot.engines.space import Seed, Space
from compilot.records import ArtifactFile, Diagnosis, Settings


def available() -> Availability:
    """Needs a GPU and the package torch-tensorrt."""
    if why := cuda_problem():
        return Availability(ok=False, why=why)
    return installed("torch-tensorrt")


def space(diagnosis: Diagnosis) -> Space:
    """For inference on a GPU."""
    if not diagnosis.cuda or diagnosis.training or diagnosis.unjudgeable:
        return Space()
    return Space(seeds=(Seed("", "NVIDIA's own compiler for inference"),))


def validate(settings: Settings) -> str | None:
    """There is nothing to choose."""
    return misfit(settings, {})


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing ahead of the first call."""
    return ()
