"""A curve of bench/training_curves.py is the plan's: every step as it says, in a process as it was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import training_curves
from compilot.artifacts.planfile import save_plan
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import PLAN_SCHEMA, Fingerprint, Kind, Plan, ProcessSettings, WorkloadRef
from compilot.training import make_step
from compilot.workload.loop import Loop


def keeps_eager(threads: int) -> Plan:
    model = torch.nn.Linear(1, 1)
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Net", kind=Kind.TRAINING),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="2.1 % faster, within 3.4 % noise",
        process=ProcessSettings(threads=threads),
        entries=(),
    )


def test_a_plan_that_keeps_eager_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"text: the plan keeps eager \(2.1 % faster, within 3.4 % noise\)"):
        training_curves.refuse_eager("text", keeps_eager(1))


def test_every_step_must_be_the_plans() -> None:
    load = training_curves.images()
    loop = Loop(load, make_step)
    training_curves.losses(loop, load, 2)
    training_curves.refuse_other_steps(loop, 2)
    with pytest.raises(SystemExit, match="not every step ran as the plan says"):
        training_curves.refuse_other_steps(loop, 3)


def test_the_process_is_as_measured_for_the_plans_steps_only(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    save_plan(keeps_eager(before + 1), tmp_path / "plan.json")
    with training_curves.process_of(tmp_path / "plan.json"):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
