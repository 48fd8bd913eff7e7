"""Eager, tuning plane: always there, nothing to build.

In: a diagnosis. Out: the layouts worth trying without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from compilot.engines.protocol import Availability, BuildRequest
from compilot.records import ArtifactFile, Candidate, Diagnosis, MemoryFormat, Settings

EAGER = Candidate(settings=Settings(), label="eager", rationale="the baseline: the model exactly as it is")


def available() -> Availability:
    """Always."""
    return Availability(ok=True, version=metadata.version("torch"))


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """Channels-last, where there are images and convolutions."""
    if not (diagnosis.has_4d_input and diagnosis.has_conv):
        return ()
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST)
    why = "convolutions often run faster on channels-last memory, and it costs no compile"
    return (Candidate(settings=settings, label="eager channels_last", rationale=why),)


def validate(settings: Settings) -> str | None:
    """Eager knows only the memory format."""
    if settings.mode or settings.options:
        return "eager has no modes and no options"
    return None


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing to build."""
    return ()
