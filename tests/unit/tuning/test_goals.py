"""What a plan is wanted for: options that do not go together are refused before any work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from stories import told

import compilot
from compilot.errors import InputError, RunDirError
from compilot.progress import Observer
from compilot.records import Goal, Objective, Shipment
from compilot.report import read_run
from compilot.report.sentences import arm_sentence
from compilot.testing.runner import Fate
from compilot.tuning import pipeline
from compilot.tuning.goals import MOST_CALLERS, make_goal
from compilot.tuning.options import TuneOptions, options_of


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_horizon_is_for_what_adds_up(objective: str) -> None:
    assert make_goal(objective, 500).horizon_calls == 500


@pytest.mark.parametrize("objective", ["p99", "startup", "memory"])
def test_and_refused_for_everything_else(objective: str) -> None:
    with pytest.raises(InputError, match=f"the objective {objective} does not look at; leave out the horizon, or"):
        make_goal(objective, 500)


@pytest.mark.parametrize("callers", [1, 4, MOST_CALLERS])
def test_callers_are_for_throughput(callers: int) -> None:
    assert make_goal("throughput", None, callers) == Goal(objective=Objective.THROUGHPUT, concurrency=callers)
    with pytest.raises(InputError, match=r"choose the objective throughput, or leave out"):
        make_goal("latency", None, callers)


@pytest.mark.parametrize("callers", [0, -1, MOST_CALLERS + 1, 2.5, True])
def test_a_number_of_callers_that_makes_no_sense_is_refused(callers: Any) -> None:
    with pytest.raises(InputError, match=f"from 1 to 256; not {callers!r}"):
        make_goal("throughput", None, callers)


@pytest.mark.parametrize("calls", [0, -5, 1.5, True])
def test_so_is_such_a_horizon(calls: Any) -> None:
    with pytest.raises(InputError, match="at least 1; not"):
        make_goal("latency", calls)


def test_what_was_asked_before_holds_as_far_as_it_fits() -> None:
    before = Goal(objective=Objective.THROUGHPUT, horizon_calls=10, concurrency=4)
    assert make_goal(before=before) == before
    assert make_goal(None, None, 8, before=before).concurrency == 8
    assert make_goal("latency", before=before) == Goal(horizon_calls=10)
    assert make_goal("memory", before=before) == Goal(objective=Objective.MEMORY)


@pytest.mark.parametrize(
    "asked", [{"concurrency": 4}, {"objective": "throughput", "concurrency": 0}, {"objective": "p99", "horizon": 9}]
)
def test_python_refuses_before_it_looks_at_the_model(asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        compilot.tune("no_such_file.py:nothing", out=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_figures_of_other_callers_are_not_mixed_into_a_resumed_run(tmp_path: Path) -> None:
    four = Goal(objective=Objective.THROUGHPUT, concurrency=4)
    told(tmp_path, {"a": Fate(speed=2.0)}, goal=four)
    with pytest.raises(RunDirError, match=r"of 4 callers at the same time, not of 1\. Leave out objective and"):
        told(tmp_path, {"a": Fate(speed=2.0)}, resume=True)
    assert told(tmp_path, {"a": Fate(speed=2.0)}, goal=four, resume=True).plan.entries


def test_the_callers_are_in_the_header_the_plan_and_the_sentence(tmp_path: Path) -> None:
    goal = Goal(objective=Objective.THROUGHPUT, concurrency=4)
    story = told(tmp_path, {"a": Fate(speed=2.0)}, goal=goal)
    assert options_of(story.run_dir.header()).goal == goal
    (entry,) = story.plan.entries
    assert entry.evidence.callers == 4
    assert re.search(r"\(95 % [\d.-]+; 3 processes x 80 pairs, 4 callers, 2 threads, none, torch 0\)", entry.sentence)
    assert "; 4 callers at the same time" in story.verdict.because
    rows = read_run(story.run_dir.path).rows
    assert [row["callers"] for row in rows] == [4, 4]
    assert arm_sentence(read_run(story.run_dir.path), story.search.told[-1]).count("4 callers") == 1


def test_a_single_caller_is_not_worth_a_word(tmp_path: Path) -> None:
    story = told(tmp_path, {"a": Fate(speed=2.0)}, goal=Goal(objective=Objective.THROUGHPUT))
    assert "caller" not in story.plan.entries[0].sentence + story.verdict.because


def test_a_run_has_as_many_callers_as_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def search(*_: Any, callers: int, **__: Any) -> None:
        asked["search"] = callers

    def runner(*_: Any, callers: int, **__: Any) -> Any:
        asked["runner"] = callers
        raise InputError("enough")

    monkeypatch.setattr(pipeline, "GuidedSearch", search)
    monkeypatch.setattr(pipeline, "LocalRunner", runner)
    options = TuneOptions(goal=Goal(objective=Objective.THROUGHPUT, concurrency=4))
    with pytest.raises(InputError, match="enough"):
        pipeline.run(Shipment(sys_path=(), cwd=""), tmp_path / "run", options, Observer())
    assert asked == {"search": 4, "runner": 4}
