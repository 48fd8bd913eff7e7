"""A gradient may jump where a ReLU is nearly zero: that is no fault. What is wrong from every start is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measure.test_step_judge import faulty, judged
from measure.trainings import training

from compilot.measure import step_check, step_jumps, step_reference
from compilot.workload.eager_step import EagerStep

LATER_RUN, *NUDGED_RUNS = range(1, 2 + len(step_check.NUDGES))  # how often the loop was put back before


class Jumping(EagerStep):
    """The gradient of one layer is 1 % off, in some of the runs."""

    runs: frozenset[int] = frozenset()
    put_back = 0

    def restart_window(self) -> None:
        self.put_back += 1
        super().restart_window()

    def update(self) -> None:
        if self.put_back in self.runs:
            self.spoil()
        super().update()

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.mul_(1.01)  # type: ignore[union-attr, operator]


class Lost(Jumping):
    """In the same runs a gradient becomes no number."""

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.fill_(float("nan"))  # type: ignore[union-attr, operator]


class Unmoved(Jumping):
    """In the same runs the gradients are right, and nothing moves."""

    def update(self) -> None:
        if self.put_back not in self.runs:
            super().update()


@pytest.mark.parametrize(
    ("kind", "runs", "passes"),
    [
        (Jumping, {LATER_RUN}, True),
        (Jumping, {LATER_RUN, NUDGED_RUNS[0]}, True),
        (Jumping, {LATER_RUN, *NUDGED_RUNS[1:]}, False),
        (Jumping, {LATER_RUN, *NUDGED_RUNS}, False),
        (Lost, {LATER_RUN}, False),
        (Unmoved, {LATER_RUN}, False),
    ],
)
def test_what_most_starts_say_counts(kind: type[Jumping], runs: set[int], passes: bool, tmp_path: Path) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    some: Any = type(kind.__name__, (kind,), {"runs": frozenset(runs)})
    found = judged(load, faulty(some, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why
    if kind is Jumping and not passes:
        assert found.why.startswith("gradient of inner.weight is wrong")


# ----------------------------------------------------------------------------------------- what eager does from nearby


def jumping_eager(folder: Path, factor: float) -> None:
    """As if eager's gradient of one layer jumped so far, from every start."""
    for path in folder.glob("jumps-later-steps.pt"):
        runs = torch.load(path, weights_only=True)
        for run in runs:
            run[0]["inner.weight"].mul_(factor)
        torch.save(runs, path)


@pytest.mark.parametrize(("eagers", "passes"), [(1.01, True), (1.0, False), (1.0095, False), (0.99, False)])
def test_a_step_that_eager_takes_from_nearby_is_right_and_no_other(eagers: float, passes: bool, tmp_path: Path) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    jumping_eager(tmp_path, eagers)
    always: Any = type("Always", (Jumping,), {"runs": frozenset({LATER_RUN, *NUDGED_RUNS})})
    found = judged(load, faulty(always, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why


def test_eager_is_noted_from_several_starts_and_a_slow_one_is_not(tmp_path: Path) -> None:
    step_reference.make_reference(training(), tmp_path)
    for name, steps in ((step_reference.FIRST, 1), (step_reference.LATER, 3), (step_reference.OTHER, 1)):
        assert [len(run) for run in step_jumps.read_jumps(tmp_path, name)] == [steps] * len(step_jumps.STARTS)
    assert step_jumps.read_jumps(tmp_path, step_reference.UPDATE) == []
    step_jumps.write_jumps(tmp_path, "slow", lambda seed: [], step_s=60.0, steps=3)
    assert step_jumps.read_jumps(tmp_path, "slow") == []


@pytest.mark.parametrize("size", [1, 10, 5000, 200_000])
def test_the_distance_of_sketches_is_about_that_of_gradients(size: int) -> None:
    one, other = torch.randn(size), torch.randn(size)
    found = (step_jumps.sketch("a", one) - step_jumps.sketch("a", other)).norm()
    assert float(found) == pytest.approx(float((one - other).norm()), rel=0.3)
    assert not torch.equal(step_jumps.sketch("a", one), step_jumps.sketch("b", one))
