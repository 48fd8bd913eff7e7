"""A small training, and plans for it that nobody has tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from small_training import AOT, Batch, Net, make_batches
from torch import nn

from compilot._tree import Call
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    CompiledWay,
    Evidence,
    Fingerprint,
    Kind,
    Plan,
    PlanEntry,
    Region,
    Settings,
    Shapes,
    StepParts,
    StepRules,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard


@pytest.fixture
def model() -> nn.Module:
    return Net()


@pytest.fixture
def batches() -> list[Batch]:
    return make_batches(6)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Programs of a test are not another one's."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


MakePlan = Callable[..., Plan]


@pytest.fixture
def make_plan(model: nn.Module, batches: list[Batch]) -> MakePlan:
    """A plan of a training for the model, with these parts."""

    def make(parts: StepParts | None = None, *, rules: StepRules | None = None, settings: Settings = AOT) -> Plan:
        guard = make_guard(model, Call((batches[0],), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
        step = parts or StepParts()
        by_region = step.compiled is CompiledWay.REGIONS
        candidate = Candidate(
            settings=Settings() if by_region else settings,
            regions=(Region(selector="blocks.*", settings=settings),) if by_region else (),
            label="made up",
            rationale="a test",
            step=step,
        )
        entry = PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="faster")
        machine = machine_fingerprint(engines={settings.engine, "inductor"})
        return Plan(
            schema=PLAN_SCHEMA,
            compilot="0",
            created="2026-01-01T00:00:00Z",
            workload=WorkloadRef(label="Net", kind=Kind.TRAINING, step=rules or StepRules()),
            fingerprint=Fingerprint(machine=machine, model=model_fingerprint(model)),
            because="a test",
            entries=() if parts is None else (entry,),
        )

    return make
