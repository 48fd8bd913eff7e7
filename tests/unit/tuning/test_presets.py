"""Presets are exact public options, and each changes the budget or the decision on some model."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stories import ListSearch, Story, candidate, told

import compilot
from compilot._durations import parse_duration, spell_duration
from compilot.api.asking import Given, options_for
from compilot.api.presets import PRESETS, Preset
from compilot.errors import InputError
from compilot.records import Diagnosis, Goal, Objective
from compilot.report import results_of
from compilot.testing.runner import Fate, Fates
from compilot.tuning.options import TuneOptions, options_of

NOTHING = Given()
DOCS = Path(__file__).parents[3] / "docs" / "tune.md"


def run(folder: Path, fates: Fates, preset: str | None, **how: Any) -> Story:
    options = options_for(NOTHING, preset)
    names = [candidate(name) for name in fates if name != "eager"]  # type: ignore[union-attr]
    return told(folder / str(preset), fates, options=options, search=ListSearch(names), **how)


def chosen(story: Story) -> str:
    return story.plan.entries[0].candidate.label if story.plan.entries else "eager"


# ------------------------------------------------------------------------------------------ each on one model


def test_dev_answers_within_a_minute_and_takes_only_what_pays_back_soon(tmp_path: Path) -> None:
    fates = {"quick": Fate(speed=1.3, cold_s=1.0), "slow": Fate(speed=2.0, cold_s=30.0)}
    assert chosen(run(tmp_path, fates, None)) == "slow"  # 10 ms per call saved, 30 s paid
    story = run(tmp_path, fates, "dev", open_s=0.2)
    assert chosen(story) == "quick"
    assert "over 2000 calls" in story.verdict.because
    assert story.run_dir.header().budget_s == 60.0


def test_research_stays_close_to_float64(tmp_path: Path) -> None:
    fates = {"rough": Fate(speed=3.0, error=1e-3), "close": Fate(speed=2.0, error=1e-6)}
    judged = Diagnosis(cores=2, threads=2, eager_error=1e-7)
    assert chosen(run(tmp_path, fates, None, diagnosis=judged)) == "rough"
    assert chosen(run(tmp_path, fates, "research", diagnosis=judged)) == "close"


def test_production_is_judged_by_the_slow_calls_and_tries_more(tmp_path: Path) -> None:
    fates = {"uneven": Fate(speed=3.0, tail=9.0), "even": Fate(speed=2.5)}
    assert chosen(run(tmp_path, fates, None, tail_calls=700)) == "uneven"
    assert chosen(run(tmp_path, fates, "production", tail_calls=700)) == "even"
    many = {f"c{number}": Fate(speed=2.0, cold_s=60.0) for number in range(10)}
    assert len(run(tmp_path / "many", many, None).runner.tried) < 6
    assert len(run(tmp_path / "many", many, "production").runner.tried) == 11  # all, and eager


def test_fleet_starts_fast(tmp_path: Path) -> None:
    fates = {"fast": Fate(speed=3.0, cold_s=20.0, warm_s=5.0), "ready": Fate(speed=2.8, cold_s=2.0, warm_s=0.2)}
    assert chosen(run(tmp_path, fates, None)) == "fast"
    assert chosen(run(tmp_path, fates, "fleet")) == "ready"


# ------------------------------------------------------------------------------------------ exact public options


@pytest.mark.parametrize("preset", list(Preset))
def test_a_preset_is_what_its_options_given_by_hand_are(preset: Preset) -> None:
    values = {option: chosen.value for option, chosen in PRESETS[preset].items()}
    assert values.keys() <= inspect.signature(compilot.tune).parameters.keys()
    assert all(chosen.why for chosen in PRESETS[preset].values())
    by_hand: dict[str, Any] = dict(values)
    assert options_for(Given(**by_hand))._replace(preset=preset.value) == options_for(NOTHING, preset)
    assert options_for(NOTHING, preset)._replace(preset=None) != TuneOptions()


def test_what_the_user_gives_counts_more_and_what_no_longer_fits_is_left_out() -> None:
    options = options_for(Given(budget="30s", objective="p99"), "dev")
    assert (options.budget_s, options.goal) == (30.0, Goal(objective=Objective.P99))
    assert options_for(Given(max_error=1e-2), Preset.RESEARCH).max_error == 1e-2
    with pytest.raises(InputError, match="which the objective p99 does not look at"):
        options_for(Given(horizon=5), "production")


def test_an_unknown_preset_is_refused_with_the_one_that_was_probably_meant() -> None:
    with pytest.raises(InputError, match=r"unknown preset 'prod' \(did you mean 'production'\?\); known are: dev, re"):
        options_for(NOTHING, "prod")


def test_the_preset_is_in_the_journal_and_stays_when_the_run_goes_on(tmp_path: Path) -> None:
    story = run(tmp_path, {"a": Fate(speed=2.0)}, "fleet")
    header = story.run_dir.last_header()
    assert (header.preset, results_of(story.run_dir.path).preset) == ("fleet", "fleet")
    again = options_for(Given(budget="1h"), earlier=header)
    assert (again.preset, again.goal.objective, again.budget_s) == ("fleet", Objective.STARTUP, 3600.0)
    other = options_for(NOTHING, "production", header)
    assert (other.preset, other.goal.objective, other.budget_s) == ("production", Objective.P99, 1200.0)
    assert options_of(msgspec.structs.replace(header, preset=None)).preset is None


def test_the_page_has_the_same_table() -> None:
    page = DOCS.read_text()
    for preset, options in PRESETS.items():
        for option, chosen in options.items():
            cell = rf"`--{option.replace('_', '-')} {re.escape(str(chosen.value))}`"
            assert re.search(rf"^\| `{preset}` \|.*{cell}", page, re.MULTILINE), (preset, option)


# --------------------------------------------------------------------------------------------------- explain


def used(found: compilot.Explanation) -> dict[str, tuple[Any, str]]:
    return {one.keyword: (one.value, one.source) for one in found.options}


def test_explain_names_each_option_and_where_it_comes_from() -> None:
    found = compilot.explain(preset="research", max_compile="90s", engines="eager, inductor")
    assert found.preset == "research"
    options = used(found)
    assert options["budget"] == ("10m", "preset")
    assert options["max_error"] == (1e-4, "preset")
    assert options["max_compile"] == ("90s", "yours")
    assert options["engines"] == (("eager", "inductor"), "yours")
    assert options["objective"] == ("latency", "default")
    assert {name for name, (value, _) in options.items() if value is None} == {
        *("horizon", "concurrency", "allow_precision", "tolerance", "max_memory"),
    }
    assert {one.keyword: one.why for one in found.options if one.why}.keys() == PRESETS[Preset.RESEARCH].keys()


def test_what_a_preset_cannot_have_beside_yours_is_a_default() -> None:
    options = used(compilot.explain(preset="dev", objective="memory"))
    assert (options["horizon"], options["objective"]) == ((None, "default"), ("memory", "yours"))


@pytest.mark.parametrize("preset", [None, *Preset])
def test_what_is_explained_asks_for_the_same_when_it_is_given_by_hand(preset: Preset | None) -> None:
    given = Given(budget="1h1s", allow_precision="bf16", tolerance=0.01, max_memory="1GiB", max_compile=0.25)
    found = compilot.explain(preset=preset, **given._asdict())
    by_hand: dict[str, Any] = {one.keyword: one.value for one in found.options}
    asked = options_for(given, preset)
    assert options_for(Given(**by_hand)) == asked._replace(preset=None)
    assert {one.option for one in found.options} == {f"--{name.replace('_', '-')}" for name in Given._fields}


def test_of_a_run_that_is_resumed_its_own_options_are_shown(tmp_path: Path) -> None:
    story = run(tmp_path, {"a": Fate(speed=2.0)}, "fleet")
    found = compilot.explain(resume=story.run_dir.path, max_error=1e-3)
    options = used(found)
    assert found.preset == "fleet"
    assert (options["objective"], options["budget"]) == (("startup", "run"), ("10m", "run"))
    assert (options["max_error"], options["engines"]) == ((1e-3, "yours"), (None, "default"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_compile": "soon"}, "'soon' is not a duration; write 90s, 5m or 1h30m"),
        ({"max_compile": "0s"}, r"the longest cold start \(max_compile\) must be more than zero"),
        ({"max_compile": -1}, r"the longest cold start \(max_compile\) must be more than zero"),
        ({"max_compile": float("nan")}, "must be more than zero"),
        ({"prior": "no"}, r"order the trials \(prior\) is True or False; not 'no'"),
        ({"max_error": 0.0}, "is a relative error between 0 and 1, such as 1e-4; not 0.0"),
        ({"max_error": 1.0}, "between 0 and 1"),
        ({"max_error": "small"}, "between 0 and 1, such as 1e-4; not 'small'"),
        ({"preset": "devel"}, r"unknown preset 'devel' \(did you mean 'dev'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        compilot.explain(**given)
    with pytest.raises(InputError, match=sentence):
        compilot.tune("no_such_file.py:nothing", **given)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(60.0, "1m"), (300.0, "5m"), (5400.0, "1h30m"), (7200.0, "2h"), (90.0, "90s"), (0.25, "0.25s")],
)
def test_a_duration_is_spelled_as_it_is_read(seconds: float, text: str) -> None:
    assert spell_duration(seconds) == text
    assert parse_duration(text) == seconds
