"""Throughput with real processes: callers are really at the same time, for eager and in a race."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import RaceRules
from compilot.tuning.comparing import try_eager
from compilot.workload.dispatch import ship_target

SLEEPING = """
import time, torch
from torch import nn

class Sleeping(nn.Module):
    def forward(self, x):
        time.sleep(0.02)  # as a model does that waits for something else: other callers can go on
        return x + 1

def factory():
    return Sleeping().eval(), torch.zeros(2, 3)
"""


def wall_s_per_call(folder: Path, callers: int) -> float:
    (folder / "sleeping.py").write_text(SLEEPING)
    run_dir = RunDir.make(folder / f"run-{callers}")
    with LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=Observer(), callers=callers) as runner:
        runner.open(ship_target(f"{folder / 'sleeping.py'}:factory"))
        runner.inspect()
        trial = try_eager(runner, 60.0)
        assert trial.measurement is not None
        assert trial.measurement.calls_per_batch >= callers
        assert statistics.median(trial.measurement.call_s) >= 0.02  # each caller waits for its own call
        race = runner.race([], RaceRules((8,), purpose="aa"))
    return statistics.median(row[0] for row in race.processes[0].rounds)


@pytest.mark.measures
def test_four_callers_of_a_model_that_sleeps_take_about_as_long_as_one(tmp_path: Path) -> None:
    one, four = (wall_s_per_call(tmp_path, callers) for callers in (1, 4))
    assert one / four > 2.0  # 4 on a quiet machine
