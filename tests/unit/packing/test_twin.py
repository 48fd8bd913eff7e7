"""The ahead-of-time twin of a torch.compile candidate: same settings, another engine."""

from __future__ import annotations

import pytest

from compilot.engines.aoti.build import validate
from compilot.packing.twin import twin_of
from compilot.records import Candidate, MemoryFormat, OptionValue, ProcessSettings, Settings, Shapes


def compiled(engine: str = "inductor", mode: str | None = None, **options: OptionValue) -> Candidate:
    settings = Settings(
        engine=engine,
        mode=mode,
        options=options,
        shapes=Shapes.DYNAMIC,
        memory_format=MemoryFormat.CHANNELS_LAST,
    )
    return Candidate(settings=settings, label="winner", rationale="", process=ProcessSettings(threads=1))


@pytest.mark.parametrize(
    ("winner", "options"),
    [
        (compiled(), {}),
        (compiled(freezing=True), {"freezing": True}),
        (compiled(freezing=True, max_autotune=True), {"freezing": True, "max_autotune": True}),
        (compiled(mode="max-autotune-no-cudagraphs"), {"max_autotune": True}),
        (compiled(cpp_wrapper=True), {}),  # ahead of time there is no other wrapper
    ],
)
def test_a_twin_has_the_winners_settings(winner: Candidate, options: dict[str, bool]) -> None:
    twin = twin_of(winner)
    assert twin is not None
    assert twin.settings.engine == "aoti"
    assert twin.settings.options == options
    assert twin.settings.shapes is winner.settings.shapes
    assert twin.settings.memory_format is winner.settings.memory_format
    assert twin.process == winner.process
    assert validate(twin.settings) is None


def test_other_backends_have_none() -> None:
    assert twin_of(compiled("dynamo:something")) is None
