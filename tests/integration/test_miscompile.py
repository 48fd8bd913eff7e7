"""A compiler that returns wrong numbers must be refused; the same compiler without the fault must pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import nn

from compilot.measure.correctness import check, make_reference
from compilot.workload import Workload
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
