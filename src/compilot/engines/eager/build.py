"""Eager, tuning plane: always there, nothing to build.

In: a diagnosis. Out: the layouts, and where the user allows it the precisions, worth trying without a compiler.
8-bit integers are not offered: torch.ao's quantisation still works but is deprecated for removal, and torchao's needs
Inductor to be fast on a CPU; onnxruntime has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from compilot.engines.arithmetic import cast_problems, cast_seeds
from compilot.engines.needs import other_precision
from compilot.engines.protocol import Availability, BuildRequest
from compilot.engines.space import CHANNELS_LAST, Seed, Space, precision_knob
from compilot.records import ArtifactFile, Candidate, Diagnosis, MemoryFormat, Precision, Settings

EAGER = Candidate(settings=Settings(), label="eager", rationale="the baseline: the model exactly as it is")
_LAST = Seed(
    "channels_last",
    "convolutions often run faster on channels-last memory, and it costs no compile",
    {"memory_format": MemoryFormat.CHANNELS_LAST},
)


def available() -> Availability:
    """Always."""
    return Availability(ok=True, version=metadata.version("torch"))


def space(diagnosis: Diagnosis) -> Space:
    """Channels-last, where there are images and convolutions; half precision, where the machine computes in it."""
    lacks = cast_problems("eager", diagnosis)
    knobs = (CHANNELS_LAST, precision_knob(lacks))
    return Space(knobs, (_LAST, *cast_seeds(lacks, {})), lacks)


def validate(settings: Settings) -> str | None:
    """Eager knows only the memory format and half precision."""
    if settings.mode or settings.options:
        return "eager has no modes and no options"
    return other_precision(settings, (Precision.BF16, Precision.FP16))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing to build."""
    return ()
