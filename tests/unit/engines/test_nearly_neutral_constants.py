"""Constants that are nearly 0 or 1: the ONNX exporter takes them for nothing, and the engine must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from compilot._tree import Call
from compilot.engines.onnxruntime import build, load
from compilot.engines.protocol import BuildRequest, Infeasible, LoadRequest
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard

pytest.importorskip("onnxruntime")


class Model(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def answer(model: nn.Module, x: Tensor, folder: Path) -> Tensor:
    """What ONNX Runtime says."""
    call = Call((torch.ones_like(x),), {})
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="onnxruntime"), label="onnxruntime", rationale="")
    build.build(BuildRequest(model, call, guard, candidate, folder))
    found: Tensor = load.load(LoadRequest(model, guard, candidate.settings, folder)).call(x)
    return found


def test_small_sums_and_factors_near_one_are_kept(tmp_path: Path) -> None:
    def several(x: Tensor) -> Tensor:
        near = [x + 1e-12, x - 3e-9, 1e-10 + x, x * 1.000004, x / 0.999996, 1e-9 - x, x + 1e-7, x * 1.00001]
        return torch.stack([torch.log(part.abs()) for part in near])

    model = Model(several)
    for size in (1e-15, 1e-11, 1.0):
        x = torch.full((2, 3), size)
        torch.testing.assert_close(answer(model, x, tmp_path), model(x), rtol=3e-7, atol=0.0)


def test_what_changes_nothing_may_still_be_dropped(tmp_path: Path) -> None:
    model, x = Model(lambda x: torch.relu((x + 0.0) * 1.0 - 0.0)), torch.randn(2, 3)
    assert torch.equal(answer(model, x, tmp_path), model(x))


def test_single_numbers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="1e-12"):
        answer(Model(lambda x: x.sum() + 1e-12), torch.randn(2, 3), tmp_path)
