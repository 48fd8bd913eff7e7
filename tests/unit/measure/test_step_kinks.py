"""A gradient may jump where a ReLU is nearly zero: that is no fault. What is wrong from every start is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measure.test_step_judge import faulty, judged
from measure.trainings import training

from compilot.measure import step_check, step_reference
from compilot.workload.eager_step import EagerStep

FIRST_RUN, LATER_RUN, *NUDGED_RUNS = range(2 + len(step_check.NUDGES))  # how often the loop was put back before


class Jumping(EagerStep):
    """The gradient of one layer is 1 % off, in some of the runs."""

    runs: frozenset[int] = frozenset()
    put_back = 0

    def restart_window(self) -> None:
        self.put_back += 1
        super().restart_window()

    def clip_and_step(self) -> None:
        if self.put_back in self.runs:
            self.spoil()
        super().clip_and_step()

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.mul_(1.01)  # type: ignore[union-attr, operator]


class Turned(Jumping):
    """In the same runs a gradient points the other way, three times as far: no ReLU does that."""

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.mul_(-3.0)  # type: ignore[union-attr, operator]


class Lost(Jumping):
    """In the same runs a gradient becomes no number."""

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.fill_(float("nan"))  # type: ignore[union-attr, operator]


class Unmoved(Jumping):
    """In the same runs the gradients are right, and nothing moves."""

    def clip_and_step(self) -> None:
        if self.put_back not in self.runs:
            super().clip_and_step()


@pytest.mark.parametrize(
    ("kind", "runs", "passes"),
    [
        (Jumping, {LATER_RUN}, True),
        (Jumping, {LATER_RUN, NUDGED_RUNS[0]}, True),
        (Jumping, {LATER_RUN, *NUDGED_RUNS[:3]}, True),
        (Jumping, {LATER_RUN, *NUDGED_RUNS[1:]}, False),
        (Jumping, {LATER_RUN, *NUDGED_RUNS}, False),
        (Turned, {LATER_RUN}, False),
        (Turned, {FIRST_RUN}, False),
        (Lost, {LATER_RUN}, False),
        (Unmoved, {LATER_RUN}, False),
    ],
)
def test_what_two_of_five_starts_say_counts(kind: type[Jumping], runs: set[int], passes: bool, tmp_path: Path) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    some: Any = type(kind.__name__, (kind,), {"runs": frozenset(runs)})
    found = judged(load, faulty(some, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why
    if kind is Jumping and not passes:
        assert found.why.startswith("gradient of inner.weight is wrong")
    passed_over = [note for note in found.notes if "passed over, from weights one rounding away it is right" in note]
    assert [note.startswith("gradient of inner.weight is wrong") for note in passed_over] == [True] * passes


class LaterToo(Jumping):
    """The first of the later steps jumps as it is, and the one after it from every start."""

    steps = 0

    def restart_window(self) -> None:
        self.steps = 0
        super().restart_window()

    def clip_and_step(self) -> None:
        self.steps += 1
        if self.put_back == LATER_RUN and self.steps == 1:
            self.spoil()
        if self.put_back in NUDGED_RUNS and self.steps == 2:
            self.spoil()
        EagerStep.clip_and_step(self)


def test_a_step_behind_the_kink_has_kinks_of_its_own(tmp_path: Path) -> None:
    """It says nothing of the step that is looked at again."""
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    found = judged(load, faulty(LaterToo, load), tmp_path, reference=reference)
    assert found.passed, found.why
