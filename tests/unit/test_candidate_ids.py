"""A candidate's id is that of its settings, whoever typed or read them."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilot.records import (
    Candidate,
    CompiledWay,
    MemoryFormat,
    OptimizerWay,
    Precision,
    ProcessSettings,
    Region,
    Settings,
    Shapes,
    StepParts,
)

EAGER_ID = "568a130fde"  # as written in plans and journals


def typed(text: str) -> str:
    """The same text in an object of its own, as a command line or a file gives it."""
    return "".join(list(text))


def candidate(settings: Settings, **more: object) -> Candidate:
    return Candidate(settings=settings, label="a label", rationale="a test", **more)  # type: ignore[arg-type]


def test_a_name_that_was_typed_is_the_default_it_equals() -> None:
    assert typed("eager") is not Settings().engine
    assert candidate(Settings(engine=typed("eager"))).id == candidate(Settings()).id == EAGER_ID


def test_so_it_is_inside_a_region_and_as_plain_text_for_a_choice() -> None:
    plain, read = (
        candidate(Settings(engine="inductor"), regions=(Region(selector="layers.*", settings=settings),))
        for settings in (Settings(), Settings(engine=typed("eager"), precision=typed("as-is")))  # type: ignore[arg-type]
    )
    assert plain == read
    assert plain.id == read.id


def test_a_file_that_spells_out_defaults_gives_the_same_id() -> None:
    text = b'{"settings":{"engine":"eager","options":{},"shapes":"static"},"label":"x","rationale":"","regions":[]}'
    assert msgspec.json.decode(text, type=Candidate).id == EAGER_ID


@given(
    st.sampled_from(["eager", "inductor", "aoti"]),
    st.sampled_from([None, "default", "max-autotune"]),
    st.dictionaries(st.text(max_size=5), st.booleans() | st.integers(-9, 9) | st.text(max_size=5), max_size=3),
    st.sampled_from(Shapes),
    st.sampled_from(Precision),
    st.none() | st.integers(1, 64),
)
def test_ids_are_those_that_files_were_written_with(
    engine: str, mode: str | None, options: dict[str, bool | int | str], shapes: Shapes, low: Precision, n: int | None
) -> None:
    """Of the fields in sorted order, without those that hold the default's own object."""
    default = Settings()
    settings = Settings(
        engine=default.engine if engine == default.engine else engine,
        mode=mode,
        options=options,
        shapes=shapes,
        memory_format=MemoryFormat.CHANNELS_LAST,
        precision=low,
    )
    process = ProcessSettings(threads=n)
    written = msgspec.to_builtins({"settings": settings, "regions": (), "process": process})
    wanted = hashlib.sha256(msgspec.json.encode(written, order="sorted")).hexdigest()[:10]
    assert candidate(settings, process=process).id == wanted


@pytest.mark.parametrize("changed", [{"mode": "default"}, {"engine": "aoti"}, {"options": {"freezing": False}}])
def test_other_settings_have_another_id(changed: dict[str, object]) -> None:
    assert candidate(Settings(**changed)).id != EAGER_ID  # type: ignore[arg-type]


def test_parts_of_a_training_step_count_and_those_of_eager_do_not() -> None:
    fused = candidate(Settings(), step=StepParts(optimizer=OptimizerWay.FUSED))
    assert candidate(Settings(), step=StepParts()).id == EAGER_ID
    assert len({EAGER_ID, fused.id, candidate(Settings(), step=StepParts(compiled=CompiledWay.MODEL)).id}) == 3
    assert not fused.is_eager
    assert msgspec.json.decode(msgspec.json.encode(fused), type=Candidate) == fused
