"""A compiler that returns wrong numbers must be refused; the same compiler without the fault must pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import nn

from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import candidates_of
from compilot.measure.correctness import check, make_reference
from compilot.progress import Observer
from compilot.records import Diagnosis, State
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload import Workload
from compilot.workload.dispatch import ship_target
from compilot.workload.variations import cases


@pytest.mark.compiles
@pytest.mark.parametrize(("fault", "passes"), [(None, True), ("accuracy", False)])
def test_a_seeded_miscompile_is_refused(fault: str | None, passes: bool, tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    workload = Workload(model, (torch.randn(8, 16),))
    kept = make_reference(workload, cases(workload), tmp_path)
    faulty = {"cpp.inject_relu_bug_TESTING_ONLY": fault, "fx_graph_cache": False}
    with inductor_config.patch(faulty):
        result = check(torch.compile(model), workload, cases(workload), tmp_path, kept)
    assert result.passed == passes, result.why
    if not passes:
        assert "RMSE" in result.why
        assert "at output (case seed 1)" in result.why


MISCOMPILED = """
import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(8, 16),)
"""


@pytest.mark.compiles
def test_a_miscompiled_candidate_is_refused_in_its_trial(tmp_path: Path) -> None:
    file = tmp_path / "miscompiled.py"
    file.write_text(MISCOMPILED)
    limits = Limits(memory_bytes=4 << 30, warm_s=5.0)
    runner = LocalRunner(RunDir(tmp_path / "run"), limits=limits, observer=Observer())
    try:
        runner.open(ship_target(f"{file}:model"))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        trial = try_one(runner, candidates_of("inductor", Diagnosis())[0], 300.0)
    finally:
        runner.close()
    assert trial.state is State.WRONG, trial.reason
    assert "RMSE" in trial.reason
    assert trial.check is not None
    assert not trial.check.passed
    assert not trial.screening  # nobody times a wrong answer
