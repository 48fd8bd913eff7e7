"""8-bit integers for real: tried in a child process, judged by the tolerance, applied from its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import candidates_of
from compilot.engines.onnxruntime import build as onnxruntime
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.errors import NoFallback
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, DynamicDim, Precision, Shapes, State
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

TINY = Path(__file__).parents[2] / "examples" / "tiny.py"

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def int8(*, dynamic: bool = False, **options: bool) -> Candidate:
    _, found, *_ = candidates_of("onnxruntime", Diagnosis(dynamic=dynamic), (Precision.INT8_DYNAMIC,))
    settings = msgspec.structs.replace(found.settings, options={**found.settings.options, **options})
    return msgspec.structs.replace(found, settings=settings)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    folder = tmp_path_factory.mktemp("run")
    runner = LocalRunner(RunDir(folder), limits=Limits(warm_s=1.0), observer=Observer())
    runner.open(ship_target(f"{TINY}:mlp"))
    runner.inspect()
    assert try_eager(runner, 60.0).state is State.OK
    yield runner
    runner.close()


def test_an_error_within_the_tolerance_is_ok_and_written_down(runner: LocalRunner) -> None:
    trial = try_one(runner, int8(), 60.0)
    assert trial.state is State.OK, trial.reason
    assert trial.check is not None
    assert trial.check.tolerance == 0.05
    assert trial.check.relative_error is not None
    assert 1e-5 < trial.check.relative_error < 0.05
    assert "tolerance 5.00%" in trial.reason


def test_an_error_above_the_users_tolerance_is_wrong_with_the_numbers(runner: LocalRunner) -> None:
    runner.tolerance = 1e-5
    trial = try_one(runner, int8(memory_pattern=False), 60.0)
    assert trial.state is State.WRONG
    assert "relative error" in trial.reason
    assert "tolerance 0.00%" in trial.reason
    assert trial.check is not None
    assert trial.check.relative_error is not None
    assert trial.check.relative_error > 1e-5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 64)
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embed(ids)
        return {"hidden": self.layers(x), "scores": x @ x.transpose(-1, -2), "ids": ids + 1}


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_plan_is_applied_from_its_files_and_dtypes_stay(dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, ids = Net().eval(), torch.randint(0, 50, (3, 7))
    dims = [DynamicDim(input="ids", dim=0, min=1, max=8)] if dynamic else []
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    guard = make_guard(model, Call((ids,), {}), dynamic=dims, shapes=shapes, grad=False)
    candidate = int8(dynamic=dynamic)
    with torch.no_grad():
        files = onnxruntime.build(BuildRequest(model, Call((ids,), {}), guard, candidate, tmp_path))
        assert sum(file.size_bytes for file in files) < 0.7 * sum(p.numel() * 4 for p in model.parameters())
        fast = attach(model, candidate, guard, tmp_path, keep_model=False)
        for size in (3, 5) if dynamic else (3,):
            check_close(fast, model, ids[:1].expand(size, 7).contiguous())
        with pytest.raises(NoFallback, match="shape of"):
            fast(torch.zeros(9, 7, dtype=torch.int64))


def check_close(fast: Fast, model: nn.Module, ids: torch.Tensor) -> None:
    answer, expected = fast(ids), model(ids)
    assert {name: t.dtype for name, t in answer.items()} == {name: t.dtype for name, t in expected.items()}
    error = (answer["hidden"] - expected["hidden"]).square().mean().sqrt() / expected["hidden"].square().mean().sqrt()
    assert 1e-5 < error < 0.05
    assert torch.equal(answer["ids"], expected["ids"])


def test_a_model_without_matrix_products_is_infeasible(tmp_path: Path) -> None:
    model, call = nn.ReLU().eval(), Call((torch.randn(2, 3),), {})
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    with torch.no_grad(), pytest.raises(Infeasible, match="no matrix products"):
        onnxruntime.build(BuildRequest(model, call, guard, int8(), tmp_path))
