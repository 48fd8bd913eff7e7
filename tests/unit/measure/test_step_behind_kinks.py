"""Where a step has a kink, the steps behind it are judged all the same: each by itself, from eager's own state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from measure.kinked import OtherSide, kinked_training, other_side
from measure.test_step_judge import SkippedUpdate, StaleState, judged
from measure.trainings import adamw, momentum

from compilot import Training
from compilot.measure import step_reference
from compilot.measure.step_check import ENOUGH
from compilot.measure.step_reference import LATER_STEPS, WARM
from compilot.records import Reference
from compilot.workload.eager_step import EagerStep

LATER = range(WARM + 1, WARM + LATER_STEPS + 1)  # numbers of the later steps: 3, 4, 5
KINKED, BEHIND = LATER[0], LATER[1]
SEEDS = 5
both = pytest.mark.parametrize(("side", "optimizer"), [("relu", adamw), ("pool", momentum)])


class Skips(OtherSide, SkippedUpdate):
    pass


class Stale(OtherSide, StaleState):
    pass


class Behind(OtherSide):
    """A fault of the step behind the kink, each time it is made."""

    def clip_and_step(self) -> None:
        if self.now == BEHIND:
            self.spoil()
        super().clip_and_step()

    def spoil(self) -> None:
        raise NotImplementedError


class OnePercentOff(Behind):
    def spoil(self) -> None:
        with torch.no_grad():
            self.model.out.weight.grad.mul_(1.01)  # type: ignore[union-attr, operator]


class TurnedRound(Behind):
    def spoil(self) -> None:
        with torch.no_grad():
            self.model.out.weight.grad.mul_(-1.0)  # type: ignore[union-attr, operator]


class NoNumber(Behind):
    def spoil(self) -> None:
        with torch.no_grad():
            self.model.out.weight.grad.fill_(float("nan"))  # type: ignore[union-attr, operator]


class LeftOut(OtherSide):
    """The update behind the kink is left out."""

    def clip_and_step(self) -> None:
        if self.now != BEHIND:
            super().clip_and_step()


class LeftOutAtTheKink(OtherSide):
    """The update is left out where the step takes the other side, and never again."""

    def clip_and_step(self) -> None:
        if not self.is_kinked():
            super().clip_and_step()


class StaleAtTheKink(OtherSide, StaleState):
    """The same for the optimizer's averages."""

    def clip_and_step(self) -> None:
        if self.is_kinked():
            StaleState.clip_and_step(self)
        else:
            EagerStep.clip_and_step(self)


class EachTime(OtherSide):
    """Takes the other side of the step behind the kink each time, from every start."""

    def is_kinked(self) -> bool:
        return super().is_kinked() or self.now == BEHIND


def trainings(optimizer: Any, folder: Path) -> Iterator[tuple[Training, Reference]]:
    for seed in range(SEEDS):
        load = kinked_training(seed, optimizer)
        yield load, step_reference.make_reference(load, folder)


def every_step(side: str) -> dict[int, str]:
    return dict.fromkeys(LATER, side)


@both
def test_a_step_behind_the_kink_has_kinks_of_its_own(side: str, optimizer: Any, tmp_path: Path) -> None:
    for load, reference in trainings(optimizer, tmp_path):
        found = judged(load, other_side(load, every_step(side)), tmp_path, reference=reference)
        assert found.passed, found.why
        passed_over = [note for note in found.notes if "passed over" in note]
        assert [f"(step {number})" in note for number, note in zip(LATER, passed_over, strict=True)] == [True] * 3
        assert found.why.startswith("8 steps agree")


@both
@pytest.mark.parametrize("fault", [Skips, Stale])
def test_a_fault_is_refused_each_time_in_a_model_with_kinks(
    fault: type[OtherSide], side: str, optimizer: Any, tmp_path: Path
) -> None:
    for load, reference in trainings(optimizer, tmp_path):
        for kinks in ({KINKED: side}, every_step(side)):
            found = judged(load, other_side(load, kinks, fault), tmp_path, reference=reference)
            assert not found.passed


@both
@pytest.mark.parametrize("fault", [OnePercentOff, TurnedRound, NoNumber, LeftOut])
def test_a_fault_of_the_step_behind_the_kink_is_refused(
    fault: type[OtherSide], side: str, optimizer: Any, tmp_path: Path
) -> None:
    for load, reference in trainings(optimizer, tmp_path):
        found = judged(load, other_side(load, {KINKED: side}, fault), tmp_path, reference=reference)
        assert not found.passed
        assert f"(step {BEHIND})" in found.why
        assert any(f"(step {KINKED})" in note for note in found.notes)


@pytest.mark.parametrize("optimizer", [adamw, momentum])
@pytest.mark.parametrize("fault", [LeftOutAtTheKink, StaleAtTheKink])
def test_a_fault_beside_the_kink_is_refused_though_it_does_not_come_again(
    fault: type[OtherSide], optimizer: Any, tmp_path: Path
) -> None:
    for load, reference in trainings(optimizer, tmp_path):
        found = judged(load, other_side(load, {BEHIND: "relu"}, fault), tmp_path, reference=reference)
        assert not found.passed
        assert f"(step {BEHIND})" in found.why


def test_a_step_behind_the_kink_that_is_off_from_every_start_is_refused(tmp_path: Path) -> None:
    load = kinked_training(0, adamw)
    reference = step_reference.make_reference(load, tmp_path)
    found = judged(load, other_side(load, {KINKED: "relu", BEHIND: "relu"}, EachTime), tmp_path, reference=reference)
    assert not found.passed
    assert f"(step {BEHIND})" in found.why


def test_a_look_again_stops_at_its_step(tmp_path: Path) -> None:
    """What it costs does not grow with the steps that have kinks."""
    load = kinked_training(0, adamw)
    reference = step_reference.make_reference(load, tmp_path)
    candidate = other_side(load, every_step("relu"))
    kept: list[OtherSide] = []

    def make(*given: Any) -> Any:
        kept.append(candidate(*given))  # type: ignore[arg-type]
        return kept[-1]

    assert judged(load, make, tmp_path, reference=reference).passed
    assert [kept[0].made.count(number) for number in LATER] == [1 + ENOUGH] * 3
