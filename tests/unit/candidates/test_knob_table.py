"""docs/search.md lists every knob that a search may turn, with the engines and values of the code, and the presets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from compilot.api.presets import PRESETS
from compilot.candidates import process
from compilot.engines import registry
from compilot.engines.space import Acts, Knob
from compilot.records import Diagnosis

PAGE = (Path(__file__).parents[3] / "docs" / "search.md").read_text()
WORDS = {True: "on", False: "off", None: "none"}
ON_GPUS = ("cudagraphs", "tensorrt")  # unproven: not in the table
OF_THE_MACHINE = {"threads", "streams", "precision"}  # whose values depend on it: the page says so in words
SEVERAL = {"threads": 4, "cores": 4, "has_4d_input": True, "has_conv": True, "denormals": True}


def rows_of(page: str) -> dict[str, tuple[list[str], list[str]]]:
    """Knob -> engines and values, as the page lists them."""
    table = page.partition("\n| knob | engines |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): (row[1].split(", "), row[2].split(", ")) for row in rows}


def knobs_of(name: str) -> list[Knob]:
    """Every knob that an engine declares for a model that draws random numbers, or for one that does not."""
    looks = [Diagnosis(**SEVERAL, stochastic=stochastic) for stochastic in (False, True)]
    found = {knob.name: knob for look in looks for knob in registry.build_half(name).space(look).knobs}
    return list(found.values())


def declared() -> dict[str, tuple[set[str], list[str]]]:
    """The same from the code."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for name in registry.BUILT_IN:
        for knob in knobs_of(name) if name not in ON_GPUS else ():
            engines = found.setdefault(knob.name, (set(), words(knob)))[0]
            engines.add(name)
    for knob in (process.DENORMALS, process.MEMORY, process.threads_knob(Diagnosis(**SEVERAL))):
        found[knob.name] = ({"every engine"}, ["as it is", *words(knob)[1:]])
    return found


def words(knob: Knob) -> list[str]:
    """What holds where it is not set, and what is tried; one without variations is set by first points."""
    tried = [variation.value for variation in knob.variations] if knob.variations else knob.values[1:]
    values = (knob.values[0], *tried)
    return [WORDS[value] if value is None or isinstance(value, bool) else str(value) for value in values]


def test_every_knob_is_in_the_table_and_no_other() -> None:
    assert rows_of(PAGE).keys() == declared().keys()


@pytest.mark.parametrize("name", sorted(rows_of(PAGE)))
def test_a_knob_has_the_engines_and_values_of_the_code(name: str) -> None:
    listed, known = rows_of(PAGE)[name], declared()[name]
    assert set(listed[0]) == known[0]
    if name not in OF_THE_MACHINE:
        assert listed[1] == known[1]


def test_a_changed_value_or_a_missing_knob_would_be_found() -> None:
    page = PAGE.replace("| 64, 16, 128 |", "| 64, 32 |").replace("| `cpp_wrapper` |", "| `cpp_rapper` |")
    assert rows_of(page)["max_fusion_size"][1] != declared()["max_fusion_size"][1]
    assert rows_of(page).keys() != declared().keys()


def test_knobs_of_the_process_are_told_from_those_of_engines() -> None:
    assert all(knob.acts is not Acts.PROCESS for name in registry.BUILT_IN for knob in knobs_of(name))


def test_the_presets_stand_for_the_options_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ((?:`--[^`]+`(?:, )?)+) \|$", PAGE, re.MULTILINE))
    assert rows == {preset.value: ", ".join(map(option, chosen.items())) for preset, chosen in PRESETS.items()}


def option(item: tuple[str, Any]) -> str:
    name, chosen = item
    value = f"{chosen.value:f}".rstrip("0") if isinstance(chosen.value, float) else chosen.value
    return f"`--{name.replace('_', '-')} {value}`"
