"""Losses over many steps, and random numbers: what passes, what does not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from measure.trainings import one_cycle, training

from compilot.measure import curve_steps, step_curve, step_reference
from compilot.measure.step_curve import EagerCurves, judge_band, judge_seeds
from compilot.measure.step_masks import SEEDS, masks_problem
from compilot.records import Precision, StepParts
from compilot.training import make_step
from compilot.workload.eager_step import EagerStep
from compilot.workload.loop import Loop

EXACT = tuple(2.0 * 0.9**n for n in range(20))
BAND = EagerCurves(steps=20, exact=EXACT, runs=tuple(tuple(v * (1 + s * 1e-6) for v in EXACT) for s in (-1, 0.5, 1)))


def test_within_eagers_band() -> None:
    curve, why = judge_band([value * (1 + 2e-6) for value in EXACT], BAND)
    assert curve.within
    assert why == ""
    assert curve.low[3] < EXACT[3] < curve.high[3]


def test_a_loss_that_stays_at_its_start_names_the_step() -> None:
    curve, why = judge_band([EXACT[0]] * 20, BAND)
    assert not curve.within
    assert "step 2 of 20" in why


def test_nan_is_outside_of_every_band() -> None:
    assert judge_band([*EXACT[:5], *[float("nan")] * 15], BAND)[1]


def seeds(shift: float, seed: int) -> tuple[tuple[float, ...], ...]:
    made = random.Random(seed)
    return tuple(tuple(value + shift + made.gauss(0.0, 0.01) for value in EXACT) for _ in range(curve_steps.SEEDS))


def test_other_random_numbers_are_equivalent() -> None:
    eager = EagerCurves(steps=20, runs=seeds(0.0, 1))
    passed = [judge_seeds(seeds(0.0, seed), eager)[1] == "" for seed in range(2, 22)]
    assert all(passed)


def test_a_shifted_loss_is_not() -> None:
    eager = EagerCurves(steps=20, runs=seeds(0.0, 1))
    refused = [judge_seeds(seeds(0.3, seed), eager)[1] for seed in range(2, 12)]
    assert all("not shown to be eager's" in why for why in refused)


def losses(mean: float, spread: float, seed: int) -> list[float]:
    made = random.Random(seed)
    return [made.gauss(mean, spread) for _ in range(SEEDS + 2)]


def test_masks_of_the_same_rate_pass() -> None:
    assert not [why for seed in range(40) if (why := masks_problem(losses(2, 0.1, seed), losses(2, 0.1, 100 + seed)))]


def test_masks_that_never_change_are_refused() -> None:
    eager = losses(2, 0.1, 0)
    assert "the same random numbers" in masks_problem([2.0] * (SEEDS + 2), eager)
    assert "hardly draws" in masks_problem([*[2.0] * SEEDS, 1.9, 2.1], eager)


def test_masks_of_another_rate_or_with_a_bias_are_refused() -> None:
    eager = losses(2, 0.1, 0)
    assert "another rate" in masks_problem(losses(2, 0.01, 1), eager)
    assert "mean loss" in masks_problem(losses(3, 0.1, 1), eager)


class HalfTheRate(EagerStep):
    """Trains with half the learning rate: every single gradient is right."""

    def clip_and_step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * 0.5
        super().clip_and_step()
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * 2.0


def test_a_real_training_over_many_steps(tmp_path: Path) -> None:
    load = training(scheduler=one_cycle)
    step_reference.make_reference(load, tmp_path)
    eager = step_curve.make_curves(load, tmp_path, random=False, double=True, limit_s=30.0)
    assert eager.steps >= curve_steps.FEWEST_STEPS
    right, why = step_curve.check_curve(Loop(load), load, tmp_path, random=False)
    assert right.within, why
    slow = Loop(load, lambda model, loss, optimizer: HalfTheRate(model, loss, optimizer, load.rules))
    wrong, why = step_curve.check_curve(slow, load, tmp_path, random=False)
    assert not wrong.within
    assert "leaves eager's band" in why


def test_a_training_with_dropout_over_many_steps(tmp_path: Path) -> None:
    load = training(dropout=0.2)
    step_reference.make_reference(load, tmp_path)
    step_curve.make_curves(load, tmp_path, random=True, double=True, limit_s=5.0)
    right, why = step_curve.check_curve(Loop(load), load, tmp_path, random=True)
    assert right.within, why
    assert right.seeds == curve_steps.SEEDS


class SlowInHalfPrecision(EagerStep):
    """Like bf16, and the learning rate is lost on the way."""

    def clip_and_step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * 0.1
        super().clip_and_step()
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * 10.0


def test_a_lower_precision_is_judged_under_several_seeds(tmp_path: Path) -> None:
    """Of a training that draws no random numbers: a seed stands for other batches."""
    load = training()
    step_reference.make_reference(load, tmp_path)
    eager = step_curve.make_curves(load, tmp_path, random=False, lower=True, double=True, limit_s=5.0)
    assert len({run[-1] for run in eager.runs}) == curve_steps.SEEDS >= 5

    def bf16(model: Any, loss: Any, optimizer: Any) -> Any:
        return make_step(model, loss, optimizer, StepParts(autocast=Precision.BF16))

    right, why = step_curve.check_curve(Loop(load, bf16), load, tmp_path, random=False, lower=True)
    assert right.within, why
    assert right.seeds == curve_steps.SEEDS
    slow = Loop(load, lambda model, loss, optimizer: SlowInHalfPrecision(model, loss, optimizer, load.rules))
    wrong, why = step_curve.check_curve(slow, load, tmp_path, random=False, lower=True)
    assert not wrong.within
    assert "not shown to be eager's" in why


def test_curves_of_both_kinds_are_kept_beside_each_other(tmp_path: Path) -> None:
    load = training()
    step_reference.make_reference(load, tmp_path)
    for lower in (False, True):
        step_curve.make_curves(load, tmp_path, random=False, lower=lower, double=False, limit_s=0.01)
    band, under_seeds = (step_curve.read_curves(tmp_path, seeds=seeds) for seeds in (False, True))
    assert band.exact == band.runs[0]
    assert len(under_seeds.runs) == curve_steps.SEEDS
    assert step_curve.check_curve(Loop(load), load, tmp_path, random=False)[0].seeds == 1
