"""Batch sizes with real processes: a worker goes from size to size and times calls of that size."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import DynamicDim, Race
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import RaceRules
from compilot.tuning.comparing import try_eager
from compilot.workload.dispatch import ship_target

SLEEPING = """
import time, torch
from torch import nn

class Sleeping(nn.Module):
    def forward(self, x, y):
        if len(x) == 3:
            raise ValueError("three is too many")
        time.sleep(0.004 * len(x))  # as long as there are samples
        return x + y

def factory():
    return Sleeping().eval(), (torch.zeros(2, 3), torch.zeros(2, 3))
"""


def median_s(race: Race) -> float:
    return statistics.median(row[0] for row in race.processes[0].rounds)


@pytest.mark.measures
def test_a_worker_times_calls_of_the_batch_size_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    batch = DynamicDim(input="*", dim=0, min=1, max=4)
    with LocalRunner(RunDir.make(tmp_path / "run"), limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        runner.open(ship_target(f"{tmp_path / 'sleeping.py'}:factory", extra_dynamic=(batch,)))
        runner.inspect()
        try_eager(runner, 60.0)
        races = {size: runner.race([], RaceRules((6,), batch=size)) for size in (1, 4, None)}
        with pytest.raises(EnvironmentProblem, match=r"batch size 5 is outside the declared range 1\.\.4"):
            runner.race([], RaceRules((6,), batch=5))
        with pytest.raises(EnvironmentProblem, match="three is too many"):
            runner.race([], RaceRules((6,), batch=3))
        again = runner.race([], RaceRules((6,)))  # a size that failed leaves nothing behind
    medians = {size: median_s(race) for size, race in races.items()}
    assert medians[1] >= 0.004
    assert medians[4] >= 0.016
    assert 0.008 <= medians[None] < medians[4]  # the example's own
    assert 0.008 <= median_s(again) < medians[4]
