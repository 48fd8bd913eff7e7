"""Run directories of plans with regions, made from real builds of the six blocks or of another model; no search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import six_blocks
import torch

import compilot
from compilot._tree import Call
from compilot.artifacts.cachelist import write_list
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.shipments import keep_shipment
from compilot.boundary.build import build
from compilot.engines.of_candidate import traits_of
from compilot.engines.protocol import BuildRequest
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
    Region,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.workload.dispatch import ship_target

Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]
DATA = Path(__file__).parent
TARGET = f"{DATA / 'six_blocks.py'}:six"


def regional(*regions: tuple[str, Settings], shapes: Shapes = Shapes.STATIC) -> Candidate:
    """The candidate with these regions, eager for the rest."""
    made = tuple(Region(selector=selector, settings=settings) for selector, settings in regions)
    rest = Settings(shapes=shapes)
    return Candidate(settings=rest, label="regions of Six", rationale="made by hand", regions=made)


def built(
    folder: Path, candidate: Candidate, made: Made | None = None, dims: tuple[DynamicDim, ...] = ()
) -> tuple[Fast, PlanEntry]:
    """What was built into a folder, started; and the entry that a plan has for it. made: another model and its call."""
    model, args, kwargs = made or six_blocks.six()
    call = Call(args, kwargs)
    guard = make_guard(model, call, dynamic=dims, shapes=candidate.settings.shapes, grad=False)
    folder.mkdir(parents=True)
    with torch.no_grad():
        files = build(BuildRequest(model, call, guard, candidate, folder))
        fast = attach(model, candidate, guard, folder)
        fast.prepare(call)
    cache = traits_of(candidate).cache_folder
    listed = write_list(folder, f"{cache}/") if cache else None
    entry = PlanEntry(
        guard=guard,
        candidate=candidate,
        evidence=Evidence(),
        sentence="as fast as it is",
        artifacts=(*files, *([] if listed is None else [listed])),
        artifacts_dir=f"work/{candidate.id}",
        frozen_weights=fast.frozen_weights,
        weights_sha256=type(fast)._compilot_core.loaded.weights_sha256,  # type: ignore[attr-defined]
    )
    return fast, entry


def run_of(folder: Path, candidate: Candidate) -> Path:
    """The run directory of a plan with this candidate, made by a process of its own.

    As in a trial: torch writes a second build of one process only in part to another cache.
    """
    command = [sys.executable, __file__, str(folder), msgspec.json.encode(candidate).decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    return folder


def make_run(
    folder: Path,
    candidate: Candidate,
    target: str = TARGET,
    made: Made | None = None,
    dims: tuple[DynamicDim, ...] = (),
) -> None:
    """The same in this process; made: what the factory of another target makes. dims: its declared sizes."""
    _, entry = built(folder / "work" / candidate.id, candidate, made, dims)
    model = made[0] if made is not None else six_blocks.model()
    plan = Plan(
        schema=PLAN_SCHEMA,
        compilot=compilot.__version__,
        created="2026-01-01T00:00:00+00:00",
        workload=WorkloadRef(label=type(model).__name__, target=target),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="made by hand",
        entries=(entry,),
    )
    save_plan(plan, folder / "plan.json")
    keep_shipment(ship_target(target), folder)


def fresh_start(plan: Path, home: Path, how: str = "compile") -> dict[str, Any]:
    """What a fresh process tells of a start: its answer against eager's, its counts, what it imported and compiled."""
    command = [sys.executable, str(DATA / "start_regions.py"), str(plan), how]
    env = {**os.environ, "COMPILOT_CACHE": str(home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


if __name__ == "__main__":
    make_run(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Candidate))
