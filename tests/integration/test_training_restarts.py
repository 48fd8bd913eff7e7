"""A training that is killed goes on as if nothing had happened, and a restarted process compiles nothing again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from resumed_training import Net, batch_of, loss_of, start

from compilot._tree import Call
from compilot.artifacts.planfile import save_plan
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    CompiledWay,
    Evidence,
    Fingerprint,
    Kind,
    OptimizerWay,
    Plan,
    PlanEntry,
    ProcessSettings,
    Settings,
    Shapes,
    StepParts,
    StepRules,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard

pytestmark = [pytest.mark.compiles, pytest.mark.slow]
SCRIPT = Path(__file__).parent / "resumed_training.py"
UPDATES = 8
# a compiler that leaves a line in a file each time it is asked to
COUNTING = """#!/bin/sh
echo "$@" >> {count}
exec g++ "$@"
"""


def plan_of(parts: StepParts) -> Plan:
    model = start()
    guard = make_guard(model, Call((batch_of(0),), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
    candidate = Candidate(settings=Settings(engine="inductor"), label="compiled", rationale="a test", step=parts)
    entry = PlanEntry(
        guard=guard, candidate=candidate, evidence=Evidence(), sentence="", artifacts_dir="artifacts/compiled"
    )
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Net", kind=Kind.TRAINING, step=StepRules(accumulate=2, clip_norm=0.5)),
        fingerprint=Fingerprint(machine=machine_fingerprint(engines={"inductor"}), model=model_fingerprint(model)),
        because="a test",
        process=ProcessSettings(),
        entries=(entry,),
    )


class Place:
    """A folder with a plan, kept code, and a compiler that counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as the script has it
        try:
            plan = plan_of(StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.KERNEL))
        finally:
            torch.set_num_threads(threads)
        (folder / "artifacts" / "compiled").mkdir(parents=True)
        save_plan(plan, folder / "plan.json")
        compiler = folder / "counting-g++"
        compiler.write_text(COUNTING.format(count=folder / "count"))
        compiler.chmod(0o755)

    def train(self, name: str, *, killed_after: int = 0) -> subprocess.CompletedProcess[str]:
        arguments = [self.folder / "plan.json", self.folder / f"{name}.pt", self.folder / f"{name}.txt"]
        env = {**os.environ, "CXX": str(self.folder / "counting-g++"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [sys.executable, SCRIPT, *map(str, arguments), str(UPDATES), str(killed_after)]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)

    def losses(self, name: str) -> list[str]:
        return (self.folder / f"{name}.txt").read_text().splitlines()

    def compiler_runs(self) -> int:
        count = self.folder / "count"
        lines = count.read_text().splitlines() if count.exists() else []
        return sum(".cpp " in line for line in lines)  # others ask for its version and for headers


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def whole(place: Place) -> dict[str, Any]:
    """What an uninterrupted training says of itself."""
    return told(place.train("whole"))


def test_killed_in_the_middle_it_goes_on_alike_and_compiles_nothing_again(place: Place, whole: dict[str, Any]) -> None:
    assert whole["recompiles"] == 0  # over a whole schedule of learning rates and betas
    assert whole["fallbacks"] == {}
    assert whole["compiles"] > 0
    cold = place.compiler_runs()
    assert cold > 0
    assert place.train("cut", killed_after=3).returncode == -signal.SIGKILL
    rest = told(place.train("cut"))
    assert place.compiler_runs() == cold
    assert (rest["misses"], rest["compiles"]) == (0, whole["compiles"])
    assert place.losses("cut") == place.losses("whole")
    assert len(place.losses("whole")) == UPDATES


@pytest.mark.usefixtures("whole")
def test_the_checkpoint_loads_without_compilot_and_goes_on(place: Place) -> None:
    _, weights, moments, *_ = torch.load(place.folder / "whole.pt")
    model = Net()
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(moments)
    assert isinstance(optimizer.param_groups[0]["lr"], float)
    assert not optimizer.param_groups[0]["fused"]
    before = model.out.weight.clone()
    loss_of(model, batch_of(0)).backward()
    optimizer.step()
    assert not torch.equal(model.out.weight, before)
    assert int(optimizer.state[model.out.weight]["step"]) == UPDATES + 1
