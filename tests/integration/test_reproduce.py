"""A claim is measured again in real processes: it holds; after an edit of the model it does not, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from making_runs import make_run

import compilot
from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.engines.eager.build import EAGER
from compilot.records import JOURNAL_SCHEMA, Comparison, Evidence, MemoryFormat, Outcome, RunHeader
from compilot.tuning import reproducing
from compilot.workload.target import load_target

SOURCE = """
import torch
from torch import nn

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv(x){more}

def small():
    return Small().eval(), (torch.ones(2, 3, 16, 16),)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose plan, eager in another memory format, claims to be about as fast as eager."""
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that wait for work would use most of the test's time
    target = tmp_path / "small.py"
    target.write_text(SOURCE.format(more=""))
    workload = load_target(f"{target}:small")
    made: Any = (workload.model, workload.call.args, workload.call.kwargs)
    folder = make_run(tmp_path / "run", "eager", f"{target}:small", made, memory_format=MemoryFormat.CHANNELS_LAST)
    plan = load_plan(folder / "plan.json")
    claimed = Comparison(
        candidate_id=plan.entries[0].candidate.id, baseline_id=EAGER.id, ratio=1.0, low=0.1, high=10.0,
        outcome=Outcome.NO_DIFFERENCE, margin=0.02, mde=0.02, aa_noise=0.01, processes=3, pairs=40,
    )  # fmt: skip
    entry = msgspec.structs.replace(plan.entries[0], evidence=Evidence(versus_eager=claimed))
    save_plan(msgspec.structs.replace(plan, entries=(entry,)), folder / "plan.json")
    header = RunHeader(
        schema=JOURNAL_SCHEMA, compilot="0", created=plan.created, workload=plan.workload,
        fingerprint=plan.fingerprint, budget_s=60.0,
    )  # fmt: skip
    Journal.create(folder / "journal.jsonl", header).close()
    return folder


@pytest.mark.slow
def test_a_claim_holds_until_the_model_is_edited(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducing, "_is_enough", lambda race, *_: len(race.processes) >= 1)  # one set is enough here
    found = compilot.reproduce(run, budget="10m", out="again", progress=False)
    assert found.result == "holds", found
    assert found.measured is not None
    assert found.measured.processes == 1
    assert found.rebuilt == ""
    assert [entry.state for entry in compilot.history().runs] == ["compared"]
    (tmp_path / "small.py").write_text(SOURCE.format(more=".relu()"))
    edited = compilot.reproduce(run, budget="10m", out="edited", progress=False)
    assert (edited.result, edited.measured) == ("does-not-hold", None)
    assert "the code of the model's classes or of functions they call changed" in edited.because
    assert "Small" in edited.because
