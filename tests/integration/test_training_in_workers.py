"""Parts of a training step that save memory or compute in bf16, each in a worker of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from compilot import Training
from compilot.artifacts.rundir import RunDir
from compilot.candidates.step_parts import step_candidate
from compilot.measure.curve_steps import SEEDS
from compilot.progress import Observer
from compilot.records import CompiledWay, Precision, ProcessSettings, State, StepParts
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

PARTS = {
    "checkpointed blocks": StepParts(checkpoint="*"),
    "bf16 autocast": StepParts(autocast=Precision.BF16),
    "compiled model + 50% of the activations kept": StepParts(compiled=CompiledWay.MODEL, memory_budget=0.5),
}


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def batch_of(seed: int) -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def blocks() -> Training:
    """The target that workers open."""
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(2)]
    return Training(nn.Sequential(*layers), loss, sgd, batch_of)


def libraries(run: Path, candidate_id: str) -> set[str]:
    workspace = RunDir(run).workspace(candidate_id)
    return {str(path.relative_to(workspace)) for path in workspace.rglob("*.so")}


@pytest.mark.slow
@pytest.mark.compiles
def test_memory_parts_and_bf16_are_judged_in_real_workers(tmp_path: Path) -> None:
    with LocalRunner(RunDir.make(tmp_path / "run"), limits=Limits(warm_s=0.2), observer=Observer()) as runner:
        runner.open(ship_target(f"{Path(__file__)}:blocks"))
        runner.inspect()
        assert try_eager(runner, 300.0).state is State.OK
        trials = [
            try_one(runner, step_candidate("a test", parts, engine="inductor"), 300.0) for parts in PARTS.values()
        ]
        compiled = trials[-1]
        kept = msgspec.structs.replace(compiled.candidate, process=ProcessSettings(keep_memory=True))
        again = try_one(runner, kept, 300.0)
        lower, exactly = (runner.over_many_steps(trial, 1.0) for trial in (trials[1], trials[0]))
    assert [trial.candidate.label for trial in trials] == [*PARTS]
    assert [(trial.state, trial.reason) for trial in trials if trial.state is not State.OK] == []
    assert (again.state, again.files_of) == (State.OK, compiled.candidate.id), again.reason
    own, copied = (libraries(tmp_path / "run", one.candidate.id) for one in (compiled, again))
    assert own
    assert copied == own  # nothing was compiled for it
    exact, rough = trials[0].check, trials[1].check
    assert exact is not None
    assert rough is not None
    assert exact.tolerance is None
    assert rough.tolerance is not None
    assert (rough.relative_error or 0.0) > (exact.relative_error or 0.0)
    for trial, seeds in ((lower, SEEDS), (exactly, 1)):  # a lower precision is shown equivalent under several seeds
        assert trial.state is State.OK, trial.reason
        assert trial.check is not None
        assert trial.check.curve is not None
        assert trial.check.curve.seeds == seeds
