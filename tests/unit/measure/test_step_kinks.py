"""A gradient may jump where a ReLU is nearly zero: that is no fault. What is wrong from every start is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measure.test_step_judge import faulty, judged
from measure.trainings import training

from compilot.measure import step_check, step_reference
from compilot.measure.step_compare import judge_step
from compilot.measure.step_seen import StepSeen
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
def test_what_two_of_the_starts_say_counts(kind: type[Jumping], runs: set[int], passes: bool, tmp_path: Path) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    some: Any = type(kind.__name__, (kind,), {"runs": frozenset(runs)})
    found = judged(load, faulty(some, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why
    if kind is Jumping and not passes:
        assert found.why.startswith("gradient of inner.weight is wrong")
    passed_over = [note for note in found.notes if "passed over, from weights one rounding away it is right" in note]
    assert [note.startswith("gradient of inner.weight is wrong") for note in passed_over] == [True] * passes


class SmallAndTurned(Jumping):
    """One gradient is 1 % off, and a later one points the other way."""

    def spoil(self) -> None:
        super().spoil()
        with torch.no_grad():
            self.model.out.weight.grad.mul_(-3.0)  # type: ignore[union-attr, operator]


class SmallAndLost(Jumping):
    """One gradient is 1 % off, and a later one is no number."""

    def spoil(self) -> None:
        super().spoil()
        with torch.no_grad():
            self.model.out.weight.grad.fill_(float("nan"))  # type: ignore[union-attr, operator]


class SmallAndMissing(Jumping):
    """One gradient is 1 % off, and a later one is missing."""

    def spoil(self) -> None:
        super().spoil()
        self.model.out.weight.grad = None  # type: ignore[union-attr]


class TwoSmall(Jumping):
    """Two gradients are 1 % off: a kink in a later layer changes those of all before it."""

    def spoil(self) -> None:
        super().spoil()
        with torch.no_grad():
            self.model.words.weight.grad.mul_(0.99)  # type: ignore[union-attr, operator]


class SmallAndAfterwards(Jumping):
    """One gradient is 1 % off, and something else is wrong after the update."""

    def clip_and_step(self) -> None:
        super().clip_and_step()
        if self.put_back in self.runs:
            with torch.no_grad():
                self.spoil_more()

    def spoil_more(self) -> None:
        raise NotImplementedError


class SmallAndStateLost(SmallAndAfterwards):
    def spoil_more(self) -> None:
        self.optimizer.state[self.model.out.weight]["exp_avg"].fill_(float("nan"))


class SmallAndStateDoubled(SmallAndAfterwards):
    def spoil_more(self) -> None:
        self.optimizer.state[self.model.out.weight]["exp_avg_sq"].mul_(2.0)


class SmallAndUnmoved(Jumping):
    """The update is left out, too: weights that stay do not follow from a gradient that is a little off."""

    def clip_and_step(self) -> None:
        if self.put_back not in self.runs:
            return super().clip_and_step()
        before = [p.detach().clone() for p in self._parameters]
        super().clip_and_step()
        with torch.no_grad():
            for parameter, value in zip(self._parameters, before, strict=True):
                parameter.copy_(value)
        return None


class SmallAndStatistics(SmallAndAfterwards):
    """A buffer follows from no gradient."""

    def spoil_more(self) -> None:
        self.model.norm.running_var.mul_(1.01)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        (TwoSmall, True),
        (SmallAndTurned, False),
        (SmallAndLost, False),
        (SmallAndMissing, False),
        (SmallAndStateLost, False),
        (SmallAndStateDoubled, False),
        (SmallAndUnmoved, False),
        (SmallAndStatistics, False),
    ],
)
def test_only_small_gradients_and_what_follows_from_them_may_be_off(
    kind: type[Jumping], passes: bool, tmp_path: Path
) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    some: Any = type(kind.__name__, (kind,), {"runs": frozenset({LATER_RUN})})
    found = judged(load, faulty(some, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why
    assert any("passed over" in note for note in found.notes) is passes


def test_the_norm_of_a_gradient_counts_like_the_gradient() -> None:
    """It stands for the places of a large one that are not looked at."""

    def seen(times: float, norm: float) -> StepSeen:
        return StepSeen((1.0,), {"small": torch.ones(9) * times}, {"small": 3.0 * times, "large": norm}, {}, {})

    right = seen(1.0, 10.0)
    for norm, kink in ((10.0, True), (10.1, True), (20.0, False), (float("nan"), False)):
        found = judge_step(seen(1.01, norm), right, [right], "step 3")
        assert found.failure.startswith("gradient of small is wrong")
        assert found.may_be_kink is kink
    assert judge_step(seen(1.0, 10.1), right, [right], "step 3").may_be_kink  # of a place that is not looked at
    assert not judge_step(seen(1.0, 20.0), right, [right], "step 3").may_be_kink


def test_near_is_within_two_limits() -> None:
    def seen(off: float) -> StepSeen:
        return StepSeen((1.0,), {"small": torch.ones(9, dtype=torch.float64) * (1.0 + off)}, {"small": 3.0}, {}, {})

    right = seen(0.0)
    limit = 1e-3 / judge_step(seen(1e-3), right, [right], "step 3").ratio
    for limits, wrong, near in ((0.9, False, False), (1.1, True, True), (1.9, True, True), (2.1, True, False)):
        found = judge_step(seen(limits * limit), right, [right], "step 3")
        assert (bool(found.failure), found.near) == (wrong, near)


@pytest.mark.parametrize(
    ("near", "passes"),
    [
        (set(NUDGED_RUNS), True),  # the start itself is off by a rounding
        ({LATER_RUN}, False),  # no kink is as small as that
    ],
)
def test_from_other_starts_a_few_roundings_more_are_allowed(
    near: set[int], passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loops = training(), list[Jumping]()
    reference = step_reference.make_reference(load, tmp_path)

    class Some(Jumping):
        runs = frozenset({LATER_RUN})

        def restart_window(self) -> None:
            loops[:] = [self]
            super().restart_window()

    def judge(*given: Any, **how: Any) -> Any:
        found = judge_step(*given, **how)
        if not loops or loops[0].put_back not in near or given[3] != "step 3":
            return found
        return found._replace(failure="gradient of inner.weight is wrong", may_be_kink=True, near=True)

    monkeypatch.setattr(step_check, "judge_step", judge)
    found = judged(load, faulty(Some, load), tmp_path, reference=reference)
    assert found.passed is passes, found.why


def test_the_optimizer_alone_has_no_kinks(tmp_path: Path) -> None:
    load = training()
    reference = step_reference.make_reference(load, tmp_path)
    update_run = LATER_RUN + 1  # nothing was looked at again
    some: Any = type("Some", (Jumping,), {"runs": frozenset({update_run})})
    found = judged(load, faulty(some, load), tmp_path, reference=reference)
    assert not found.passed
    assert "optimizer alone, update 1" in found.why
