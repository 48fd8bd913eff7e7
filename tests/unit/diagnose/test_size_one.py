"""Size 1 among other sizes of a dimension, on torch itself: two findings, each with its own words and its own fix."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot.diagnose.examination import Examination
from compilot.diagnose.report_records import DoctorReport
from compilot.workload import Workload


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()


def examined(x: torch.Tensor) -> DoctorReport:
    torch.compiler.reset()
    examination = Examination(Workload(Net(), (x,), dynamic={"x": {0: (1, 64)}}))
    examination.eager()
    examination.capture()
    examination.drive()
    return examination.report()


def test_both_are_found_where_the_dimension_is_not_marked() -> None:
    report = examined(torch.ones(16, 4))
    assert report.driven == len(report.calls) - 1  # without the first, which was made to see the graphs
    one, other = sorted(report.recompiles, key=lambda found: found.new != "1")
    assert (one.old, one.new) == ("16", "1")
    assert "size 1 has its own code" in one.fix
    assert (other.old, other.new) == ("16", "64")
    assert other.fix.startswith("call torch._dynamo.mark_dynamic(x, 0)")
    assert one.declared
    assert other.declared
    assert sum(found.cost_s or 0.0 for found in report.findings if found.where) * report.driven == pytest.approx(
        sum(found.compile_s or 0.0 for found in report.recompiles)
    )


def test_marked_dynamic_only_size_one_is_left_and_its_size_is_told() -> None:
    x = torch.ones(16, 4)
    torch._dynamo.mark_dynamic(x, 0)
    (found,) = examined(x).recompiles
    assert (found.old, found.new) == ("2 or more", "1")
    assert "is 1: the dimension is dynamic already, but sizes 0 and 1 always get code of their own" in found.cause
    assert "mark_dynamic" not in found.fix
