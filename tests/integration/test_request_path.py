"""Requests with real processes: the whole path is timed, and the model's share of it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.records import Kind
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager
from compilot.workload.dispatch import ship_target

SLEEPING = """
import time, torch, compilot
from torch import nn

class Sleeping(nn.Module):
    def forward(self, x):
        time.sleep(0.004)
        return x + 1

def request(call, item):
    time.sleep(0.012)  # preparing takes three times as long as the model
    return call(torch.tensor([item])).tolist()

def factory():
    return compilot.Workload(Sleeping().eval(), request=request, items=[[1.0, 2.0], [3.0, 4.0]])
"""


@pytest.mark.measures
def test_the_whole_path_is_timed_and_the_models_share_is_told(tmp_path: Path) -> None:
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    with LocalRunner(RunDir.make(tmp_path / "run"), limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        model = runner.open(ship_target(f"{tmp_path / 'sleeping.py'}:factory"))
        seen = runner.inspect()
        measured = try_eager(runner, 60.0).measurement
    assert model.ref.kind is Kind.REQUEST
    assert seen.diagnosis.unjudgeable is None
    assert measured is not None
    assert min(measured.call_s) >= 0.016
    assert measured.request_s is not None
    assert measured.model_s is not None
    assert 0.004 <= measured.model_s < measured.request_s
    assert measured.request_s - measured.model_s >= 0.012
