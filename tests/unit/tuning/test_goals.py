"""What a plan is wanted for: options that do not go together are refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stories import told

import compilot
from compilot.errors import InputError, RunDirError
from compilot.records import Goal, Objective
from compilot.testing.runner import Fate
from compilot.tuning.goals import MOST_CALLERS, make_goal


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_horizon_is_for_what_adds_up(objective: str) -> None:
    assert make_goal(objective, 500).horizon_calls == 500


@pytest.mark.parametrize("objective", ["p99", "startup", "memory"])
def test_and_refused_for_everything_else(objective: str) -> None:
    with pytest.raises(InputError, match=f"the objective {objective} does not look at; leave the horizon away, or"):
        make_goal(objective, 500)


@pytest.mark.parametrize("callers", [1, 4, MOST_CALLERS])
def test_callers_are_for_throughput(callers: int) -> None:
    assert make_goal("throughput", None, callers) == Goal(objective=Objective.THROUGHPUT, concurrency=callers)
    with pytest.raises(InputError, match=r"add --objective throughput \(in Python: objective='throughput'\)"):
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
    with pytest.raises(RunDirError, match="those of 4 callers at the same time, not of 1"):
        told(tmp_path, {"a": Fate(speed=2.0)}, resume=True)
    assert told(tmp_path, {"a": Fate(speed=2.0)}, goal=four, resume=True).plan.entries
