"""Plans of a training that nobody has tuned, for tests of what uses them."""

from __future__ import annotations

from typing import Any

from torch import nn

from compilot._tree import Call
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
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

AOT = Settings(engine="dynamo:aot_eager")  # traced and differentiated as by the compiler, but run by eager


def plan_of_step(
    model: nn.Module,
    batch: Any,
    step: StepParts,
    *,
    settings: Settings = AOT,
    regions: tuple[Region, ...] = (),
    rules: StepRules = StepRules(),  # noqa: B008  # frozen
    artifacts_dir: str = "",
) -> Plan:
    """A plan for this model and batches like this one, with these parts."""
    guard = make_guard(model, Call((batch,), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
    candidate = Candidate(settings=settings, regions=regions, label="compiled", rationale="a test", step=step)
    entry = PlanEntry(
        guard=guard, candidate=candidate, evidence=Evidence(), sentence="faster", artifacts_dir=artifacts_dir
    )
    machine = machine_fingerprint(engines={settings.engine, "inductor"})
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label=type(model).__name__, kind=Kind.TRAINING, step=rules),
        fingerprint=Fingerprint(machine=machine, model=model_fingerprint(model)),
        because="a test",
        entries=(entry,),
    )
