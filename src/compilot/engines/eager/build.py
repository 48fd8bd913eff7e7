"""Eager, tuning plane: always there, nothing to build.

In: a diagnosis. Out: the layouts, and where the user allows it the precisions, worth trying without a compiler.
8-bit integers are not offered: torch.ao's quantisation still works but is deprecated for removal, and torchao's needs
Inductor to be fast on a CPU; onnxruntime has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from compilot.engines.arithmetic import cast_offer
from compilot.engines.needs import other_precision
from compilot.engines.protocol import Availability, BuildRequest, Lower
from compilot.records import ArtifactFile, Candidate, Diagnosis, MemoryFormat, Precision, Settings, Shapes

EAGER = Candidate(settings=Settings(), label="eager", rationale="the baseline: the model exactly as it is")


def available() -> Availability:
    """Always."""
    return Availability(ok=True, version=metadata.version("torch"))


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """Channels-last, where there are images and convolutions."""
    if not (diagnosis.has_4d_input and diagnosis.has_conv):
        return ()
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST, shapes=shapes)
    why = "convolutions often run faster on channels-last memory, and it costs no compile"
    return (Candidate(settings=settings, label="eager channels_last", rationale=why),)


def offer_precision(diagnosis: Diagnosis, precision: Precision) -> Lower:
    """The model cast to half precision, where the machine computes in it."""
    return cast_offer("eager", diagnosis, precision)


def validate(settings: Settings) -> str | None:
    """Eager knows only the memory format and half precision."""
    if settings.mode or settings.options:
        return "eager has no modes and no options"
    return other_precision(settings, (Precision.BF16, Precision.FP16))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing to build."""
    return ()
