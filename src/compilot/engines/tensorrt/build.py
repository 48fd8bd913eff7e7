"""TensorRT, tuning plane: offered only where the inputs are on a GPU. Unproven: written without a GPU at hand.

In: a diagnosis. Out: one candidate. torch_tensorrt is a torch.compile backend: it builds at the first call (load.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.engines.needs import cuda_problem, installed, misfit
from compilot.engines.protocol import Availability, BuildRequest
from compilot.records import ArtifactFile, Candidate, Diagnosis, Settings, Shapes


def available() -> Availability:
    """Needs a GPU and the package torch-tensorrt."""
    if why := cuda_problem():
        return Availability(ok=False, why=why)
    return installed("tensorrt", ("torch-tensorrt",))._replace(install="pip install torch-tensorrt")


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """For inference on a GPU."""
    if not diagnosis.cuda or diagnosis.training or diagnosis.unjudgeable:
        return ()
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    settings = Settings(engine="tensorrt", shapes=shapes)
    return (Candidate(settings=settings, label="tensorrt", rationale="NVIDIA's own compiler for inference"),)


def validate(settings: Settings) -> str | None:
    """There is nothing to choose."""
    return misfit(settings, {})


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing ahead of the first call."""
    return ()
