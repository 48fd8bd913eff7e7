"""bench/training.py on arms that take as long as they are told: rounds, going on, the table, who falls short."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch

import training
import training_arm
import training_curves
import training_models
import training_table
from compilot.records import LossCurve
from stepping import MoreToDo, Steps
from training_journal import Journal, Tuned

MS = {"eager": 4.0, "eager_fused": 3.0, "compile": 3.5, "compile_fused": 2.5, "plan": 2.4}
ASKED = argparse.Namespace(budget="1s", sets=2, rounds=8)


class FakeArm:
    """Takes its time on paper."""

    first_s = 1.0

    def __init__(self, model: str, arm: str, run: Path) -> None:
        self.step_s = MS[arm] / 1e3 * (0.9 if model == "mlp" and arm == "compile_fused" else 1.0)
        self.closed = False

    def time(self, steps: int) -> float:
        assert steps >= 1
        return self.step_s

    def close(self) -> int:
        return 300 << 20


def plan(model: str, run: Path, budget: str) -> Tuned:
    return Tuned(model=model, chosen="fused optimizer", sentence="faster", tried={"one graph": "wrong 0.000x words"})


def test_it_goes_on_after_the_last_step_and_the_table_says_who_falls_short(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "training.jsonl", code="x")
    with pytest.raises(MoreToDo):
        training.run_all(journal, ["gpt2", "mlp"], tmp_path, ASKED, Steps(2), plan, FakeArm)
    again = Journal(tmp_path / "training.jsonl", code="x")
    assert len(again.raced("gpt2")) == 1
    training.run_all(again, ["gpt2", "mlp"], tmp_path, ASKED, Steps(), plan, FakeArm)
    assert [len(again.raced(model)) for model in ("gpt2", "mlp")] == [2, 2]
    lines = training_table.table(again, ["gpt2", "mlp"])
    gpt2 = next(line for line in lines if line.startswith("| gpt2"))
    assert "| 1.667 (1.667-1.667) |" in gpt2
    assert "| compile_fused | 1.042 (1.042-1.042) |" in gpt2
    assert "shown below 0.98 of the best by hand: mlp; wanted: none" in lines
    assert any(line.startswith("mlp is below 1.03") for line in lines)
    assert "  one graph: wrong 0.000x words" in lines
    assert not any(line.startswith("gpt2 is below") for line in lines)
    assert any(line.startswith("geometric mean over eager: 1.667") and line.endswith("met") for line in lines)
    assert lines[0].count("|") == lines[1].count("|") == gpt2.count("|")


def test_too_few_rounds_show_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "training.jsonl", code="x")
    short = argparse.Namespace(budget="1s", sets=1, rounds=3)
    training.run_all(journal, ["mlp"], tmp_path, short, Steps(), plan, FakeArm)
    lines = training_table.table(journal, ["mlp"])
    assert "shown below 0.98 of the best by hand: none; wanted: none" in lines
    assert "geometric mean over eager: too few rounds" in lines


def test_every_arm_by_hand_takes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_models, "TINY", True)
    for arm in ("eager", "eager_fused"):
        for model in ("mlp", "resnet18"):
            step, load = training_arm.stepper(model, arm, None)
            assert torch.isfinite(step(load.batches[0]))
            assert bool(load and step.optimizer.param_groups[0]["fused"]) is (arm == "eager_fused")


def test_the_curves_are_of_real_tasks_that_can_be_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    load = training_curves.images()
    curve = training_curves.losses(training_curves.Loop(load), load, 12)
    assert curve[-1] < 0.8 * curve[0]
    assert len(training_curves.corpus()) > 50_000
    values = LossCurve(losses=curve, eager=curve, exact=curve, low=curve, high=curve)
    drawn = training_curves.picture([training_curves.Curve(task="images", plan="x", curve=values)])
    assert drawn.count("<path") == 6  # three losses; what is allowed, and two distances
    assert all(name in drawn for name in ("float64", "eager", "the plan", "allowed"))
