"""An engine that comes as files, and a plan for it or for any other engine: shared by tests of the run plane."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    DynamicDim,
    Evidence,
    Fingerprint,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard


class FileEngine:
    """Holds everything it needs, as engines that come as files do."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.broken: Exception | None = None

    def load(self, request: LoadRequest) -> Loaded:
        own = copy.deepcopy(request.model)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.broken is not None:
                raise self.broken
            return own(*args, **kwargs)

        return Loaded(call=call, frozen_weights=True, needs_model=False)


def plan_for(model: nn.Module, engine: str, x: torch.Tensor, dynamic: Sequence[DynamicDim] = ()) -> Plan:
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    guard = make_guard(model, Call((x,), {}), dynamic=dynamic, shapes=shapes, grad=False)
    candidate = Candidate(settings=Settings(engine=engine, shapes=shapes), label=engine, rationale="test")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Linear"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="it is small",
        entries=(PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast"),),
    )
