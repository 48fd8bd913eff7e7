"""The smallest candidate goes through race and confirmation, although its build took the most memory of all."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import MIB, Story, told

from compilot.records import Decision, Goal, Objective
from compilot.testing.runner import Fate


def fate(call_s: float, built_mib: int, fresh_mib: int) -> Fate:
    return Fate(speed=0.02 / call_s, build_bytes=built_mib * MIB, rss_bytes=fresh_mib * MIB)


def choose(folder: Path, **fates: Fate) -> Story:
    eager = fate(0.02, 500, 500)
    return told(folder, {"eager": eager, **fates}, goal=Goal(objective=Objective.MEMORY), workers=4)


def test_the_smallest_is_confirmed_and_chosen_however_much_its_build_took(tmp_path: Path) -> None:
    fast, next_best, small = fate(0.01, 800, 700), fate(0.012, 900, 800), fate(0.02, 2000, 300)
    story = choose(tmp_path, fast=fast, next=next_best, small=small)
    assert story.runner.confirmed[0][0] == "small"
    assert story.verdict.decision is Decision.USE
    assert story.plan.entries[0].candidate.label == "small"
    assert "peak memory 300 MiB against eager's 500 MiB" in story.verdict.because


def test_a_small_one_that_the_race_shows_slower_makes_room_for_the_next_smallest(tmp_path: Path) -> None:
    story = choose(tmp_path, fast=fate(0.01, 800, 400), slow=fate(0.03, 900, 100))
    assert story.runner.confirmed[0][0] == "fast"
    assert story.plan.entries[0].candidate.label == "fast"


@pytest.mark.parametrize("objective", [Objective.LATENCY, Objective.MEMORY])
def test_the_objective_makes_the_difference(tmp_path: Path, objective: Objective) -> None:
    fates = {"quick": fate(0.01, 800, 450), "small": fate(0.018, 800, 100), "eager": fate(0.02, 500, 500)}
    story = told(tmp_path, fates, goal=Goal(objective=objective))
    assert story.plan.entries[0].candidate.label == ("small" if objective is Objective.MEMORY else "quick")
