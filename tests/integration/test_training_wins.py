"""A training is tuned for real: the compiled model wins, and a fresh process uses it without compiling anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import compilot
from compilot.records import CompiledWay
from compilot.tuning import budget
from compilot.tuning.budget import Budget

pytestmark = [pytest.mark.measures, pytest.mark.compiles, pytest.mark.slow]
TARGET = Path(__file__).parents[1] / "data" / "tuned_training.py"
PATIENCE_S = 900.0  # a busy machine may take its time for a step of the trial, and for the confirmation


def test_tuned_with_inductor_and_used_in_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "OVERRUN_S", PATIENCE_S)
    monkeypatch.setattr(Budget, "trial_cap_s", lambda self, reserve_s: PATIENCE_S)
    monkeypatch.setattr(budget, "CONFIRM_PROCESSES", 1)
    run = tmp_path / "run"
    plan = compilot.tune(f"{TARGET}:training", budget="20s", engines=["inductor"], out=run, progress=False)
    (entry,) = plan.entries
    assert entry.candidate.step.compiled is not CompiledWay.NOTHING
    even = entry.evidence.break_even
    assert even is not None
    assert even.cold_calls is not None
    assert even.warm_calls is not None
    assert even.cold_calls >= even.warm_calls >= 1
    rows = {row["id"]: row for row in compilot.results(run).rows}
    assert rows[entry.candidate.id]["break_even_calls"] == even.cold_calls
    done = subprocess.run(
        [sys.executable, str(TARGET), str(run)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["misses"] == 0
    assert told["hits"] > 0
    assert (told["fast"], told["fallbacks"], told["finite"]) == (4, {}, True)
