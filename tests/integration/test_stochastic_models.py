"""Models that draw random numbers, judged with real engines: right with eager's numbers, wrong with others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import candidates_of
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, State
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import Inspection
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

DECIDING = Path(__file__).parent.parent / "data" / "deciding.py"

Opening = Callable[[str], tuple[LocalRunner, Inspection]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opening]:
    runners: list[LocalRunner] = []

    def open_target(name: str) -> tuple[LocalRunner, Inspection]:
        runner = LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=1.0), observer=Observer())
        runners.append(runner)
        runner.open(ship_target(f"{DECIDING}:{name}"))
        inspected = runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        return runner, inspected

    yield open_target
    for runner in runners:
        runner.close()


def only(candidates: list[Candidate], label: str) -> Candidate:
    return next(c for c in candidates if c.label == label)


def assert_judged_when_seeded(inspected: Inspection) -> None:
    diagnosis = inspected.diagnosis
    assert diagnosis.unjudgeable is None
    assert diagnosis.stochastic
    assert "stochastic" in [finding.kind for finding in diagnosis.findings]


@pytest.mark.compiles
def test_dropout_in_train_mode_is_right_with_eagers_numbers_and_wrong_with_others(opened: Opening):
    runner, inspected = opened("dropping")
    assert_judged_when_seeded(inspected)
    offers = candidates_of("inductor", inspected.diagnosis)
    plain = try_one(runner, only(offers, "inductor"), 120.0)
    assert plain.state is State.WRONG
    assert "draws other random numbers than eager" in plain.reason
    assert plain.check is not None
    assert plain.check.reference == "eager"  # double precision would draw other numbers
    same = try_one(runner, only(offers, "inductor fallback_random"), 120.0)
    assert same.state is State.OK, same.reason


@pytest.mark.compiles
def test_noise_in_eval_mode_is_right_in_another_layout_and_compiled_with_eagers_numbers(opened: Opening):
    runner, inspected = opened("noisy_images")
    assert_judged_when_seeded(inspected)
    found = [c for name in ("eager", "inductor") for c in candidates_of(name, inspected.diagnosis)]
    for label in ("eager channels_last", "inductor fallback_random"):
        trial = try_one(runner, only(found, label), 120.0)
        assert trial.state is State.OK, trial.reason
        assert trial.check is not None
        assert "agree with eager" in trial.check.why
        assert trial.check.reference == "eager"


def test_only_candidates_that_can_draw_eagers_numbers_are_offered():
    labels = [c.label for c in candidates_of("inductor", Diagnosis(stochastic=True))]
    assert labels == ["inductor", "inductor fallback_random", "inductor freezing + fallback_random"]
