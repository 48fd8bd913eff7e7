"""Run directories as `compilot tune` leaves them, made from one real build: no search, no timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import compilot
from compilot._tree import Call
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.shipments import keep_shipment
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Evidence,
    Fingerprint,
    MemoryFormat,
    OptionValue,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard
from compilot.workload.dispatch import ship_target


def make_run(
    folder: Path,
    engine: str | None,
    target: str,
    made: tuple[nn.Module, tuple[Any, ...], dict[str, Any]],
    options: dict[str, OptionValue] | None = None,
    memory_format: MemoryFormat = MemoryFormat.PRESERVE,
) -> Path:
    """The run directory of one engine for a target and what its factory makes; engine None: the plan keeps eager."""
    model, args, kwargs = made
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model))
    call = Call(args, kwargs)
    settings = Settings(engine=engine or "eager", options=options or {}, memory_format=memory_format)
    entries = () if engine is None else (make_entry(folder, settings, model, call),)
    plan = Plan(
        schema=PLAN_SCHEMA,
        compilot=compilot.__version__,
        created="2026-01-01T00:00:00+00:00",
        workload=WorkloadRef(label=type(model).__name__, target=target),
        fingerprint=fingerprint,
        because="made by hand",
        entries=entries,
    )
    save_plan(plan, folder / "plan.json")
    keep_shipment(ship_target(target), folder)
    return folder


def make_entry(folder: Path, settings: Settings, model: nn.Module, call: Call) -> PlanEntry:
    """Build one engine's files into the run directory."""
    candidate = Candidate(settings=settings, label=settings.engine, rationale="made by hand")
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    work = folder / "work" / candidate.id
    work.mkdir(parents=True)
    with torch.no_grad():
        files = registry.build_half(settings.engine).build(BuildRequest(model, call, guard, candidate, work))
    return PlanEntry(
        guard=guard,
        candidate=candidate,
        evidence=Evidence(),
        sentence="as fast as it is",
        artifacts=tuple(files),
        artifacts_dir=f"work/{candidate.id}",
        frozen_weights=True,
    )
