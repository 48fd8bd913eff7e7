"""bench/budgets.py: its steps, who races whom, and when a longer budget is shown slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.regret_fakes import quick, samples_of

import budgets
from budgets import Bench, Tuned
from compilot.records import Candidate, IndexFacts
from plan_arms import Arm, ArmFailed, Set
from stepping import DONE, MORE, Steps
from tune_runs import Story

SHORT, LONG = quick(a=True), quick(b=True)
PLANS = {"60s": SHORT, "5m": LONG, "20m": LONG}


class Machine:
    """Stands in for tunes and races."""

    def __init__(self, plans: Mapping[str, Candidate], speeds: Mapping[str, float]) -> None:
        self.plans = plans
        self.speeds = speeds  # by candidate
        self.tuned: list[str] = []
        self.raced: list[tuple[str, ...]] = []
        self.fails = ""

    def tune(self, bench: Bench, budget: str) -> None:
        self.tuned.append(budget)
        stamp = {"at": "", "code": "", "wall_s": 1.0}
        story = Story(tried=(), chosen="")
        bench.append(Tuned(model=bench.model, budget=budget, chosen=self.plans[budget], story=story, **stamp))

    def race_once(self, shipment: object, arms: Sequence[Arm], indices: IndexFacts, **rules: Any) -> Set:
        self.raced.append(tuple(arm.candidate.id for arm in arms))
        if self.fails in self.raced[-1]:
            raise ArmFailed(self.fails, "died")
        speeds = [self.speeds[arm.candidate.id] for arm in arms]
        return Set(samples_of(speeds, rules["pairs"], rules["process"]), "", 1.0)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The bench on such a machine."""

    def made(plans: Mapping[str, Candidate] = PLANS, long_speed: float = 1.0, fails: str = "") -> tuple[Bench, Machine]:
        machine = Machine(plans, {SHORT.id: 1.0, LONG.id: long_speed})
        machine.fails = fails
        monkeypatch.setattr(budgets, "tune", machine.tune)
        monkeypatch.setattr(budgets.plan_arms, "race_once", machine.race_once)
        monkeypatch.setattr(budgets, "indices_of", lambda folders: IndexFacts())
        return Bench("mlp", tuple(plans), tmp_path, tmp_path / "work", 40, 3), machine

    return made


def verdicts(bench: Bench) -> dict[tuple[str, str], str]:
    return {(r.longer, r.shorter): r.verdict for r in budgets.rows(bench)}


def test_step_by_step_with_the_same_exit_codes(on: Any) -> None:
    bench, machine = on()
    codes = [budgets.work(bench, Steps(1)) for _ in range(6)]
    assert codes == [MORE] * 5 + [DONE]
    assert machine.tuned == ["60s", "5m", "20m"]
    assert machine.raced == [(SHORT.id, SHORT.id, LONG.id)] * 3  # the first twice; equal plans once


def test_a_plan_with_more_time_that_is_slower_is_shown(on: Any) -> None:
    bench, _ = on(long_speed=0.9)
    assert budgets.work(bench, Steps()) == DONE
    assert verdicts(bench) == {
        ("5m", "60s"): "shown slower",
        ("20m", "60s"): "shown slower",
        ("20m", "5m"): "the same candidate",
    }
    assert "not met" in budgets.notes(bench, budgets.rows(bench))[0]


@pytest.mark.parametrize("speed", [1.0, 1.2])
def test_one_that_is_as_fast_or_faster_is_not(on: Any, speed: float) -> None:
    bench, _ = on(long_speed=speed)
    budgets.work(bench, Steps())
    assert verdicts(bench)["5m", "60s"] == "not shown slower"
    assert "aim none: met" in budgets.notes(bench, budgets.rows(bench))[0]


def test_equal_plans_need_no_race(on: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench, machine = on(dict.fromkeys(PLANS, SHORT))
    assert budgets.work(bench, Steps()) == DONE
    assert machine.raced == []
    assert set(verdicts(bench).values()) == {"the same candidate"}
    budgets.report(bench)
    assert "aim none: met" in capsys.readouterr().out


def test_a_plan_that_fails_in_the_race_leaves_the_question_open(on: Any) -> None:
    bench, _ = on(fails=LONG.id)
    assert budgets.work(bench, Steps()) == DONE
    assert verdicts(bench)["5m", "60s"] == "not measured"
    told = budgets.notes(bench, budgets.rows(bench))
    assert "not decided" in told[0]
    assert f"failed in the race: {LONG.id}: died" in told


def test_budgets_are_sorted_by_their_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(budgets, "work", lambda bench, allowed: seen.append(bench.budgets) or MORE)
    argv = ["--model", "mlp", "--budgets", "20m,60s,5m", "--out", str(tmp_path)]
    assert budgets.main(argv) == MORE
    assert seen == [("60s", "5m", "20m")]
