"""A compiler whose backward is off by 1 % is refused by real workers; the same training without the fault is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.candidates.step_parts import step_candidate
from compilot.progress import Observer
from compilot.records import CompiledWay, State, StepParts, Trial
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

pytestmark = pytest.mark.slow
TARGET = Path(__file__).parents[1] / "data" / "faulty_training.py"


def tried(seed: int, engines: list[str], folder: Path) -> list[Trial]:
    """The model compiled by each of these, in workers of their own."""
    parts = StepParts(compiled=CompiledWay.MODEL)
    with LocalRunner(RunDir.make(folder), limits=Limits(warm_s=0.2), observer=Observer()) as runner:
        runner.open(ship_target(f"{TARGET}:seed_{seed}"))
        runner.inspect()
        if "dynamo:aot_eager" in engines:
            assert try_eager(runner, 300.0).state is State.OK
        return [try_one(runner, step_candidate("a test", parts, engine=engine), 300.0) for engine in engines]


@pytest.mark.parametrize("seed", range(5))
def test_a_backward_that_is_off_by_one_percent_is_wrong(seed: int, tmp_path: Path) -> None:
    right = ["dynamo:aot_eager"] if seed == 0 else []
    *passed, refused = tried(seed, [*right, "dynamo:faulty_backward"], tmp_path / "run")
    assert [(trial.state, trial.reason) for trial in passed if trial.state is not State.OK] == []
    assert refused.state is State.WRONG, refused.reason
    assert refused.check is not None
    assert "gradient" in refused.check.why
    assert "step 1" in refused.check.why
    assert not refused.screening  # nobody times a wrong training
