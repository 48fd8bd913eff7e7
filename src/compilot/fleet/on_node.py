"""What runs on a node: its fingerprint, a model's identity, and one job: tune, pack, bring the bundle to the store.

In and out: bytes of the records in jobs.py. Called by name, in a process of its own (crew.py) or by a cluster's worker;
the working folder is the manifest's, or a copy of it. A run that was interrupted on this node is gone on with, one that
is finished is only packed. The bundle leaves the node unsigned: private keys stay with whoever asks.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from compilot.api import bundling, tuning
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.store.remote import UPLOADS, Remote
from compilot.errors import CompilotError
from compilot.files import atomic
from compilot.files.private import cache_home, private_directory
from compilot.fleet.jobs import Identified, Identify, Job, Made
from compilot.records import DynamicDim, ModelFingerprint, Outcome, Plan, VerdictLine, encode


def fingerprint(_: bytes) -> bytes:
    """This machine's, as a fresh process has it."""
    from compilot.identity.machine import machine_fingerprint

    return encode(machine_fingerprint())


def identify(payload: bytes) -> bytes:
    """The fingerprints of some targets' models, with their weights; a target that cannot be opened says why."""
    asked = msgspec.json.decode(payload, type=Identify)
    return encode(Identified(models=tuple(_identified(target) for target in asked.targets)))


def _identified(target: str) -> ModelFingerprint | str:
    from compilot.identity.model import model_fingerprint
    from compilot.workload.target import load_target

    try:
        return model_fingerprint(load_target(target).model, weights=True)
    except CompilotError as problem:
        return str(problem)


def make_bundle(payload: bytes) -> bytes:
    """Tune and pack."""
    return encode(made(msgspec.json.decode(payload, type=Job)))


def made(job: Job) -> Made:
    """The story of one job on its node."""
    began = time.monotonic()
    folder = _folder(job)
    atomic.sweep(folder)  # what a killed job left half-written
    if job.again:
        atomic.remove(folder / "run")
    plan = _tuned(job, folder / "run")
    if not plan.entries:
        final, where = _is_final(folder / "run"), str(folder / "run")
        seconds = time.monotonic() - began
        return Made(eager=True, final=final, because=plan.because, run_dir=where, seconds=seconds)
    bundle = folder / "unsigned.cpbundle"
    bundling.pack(folder / "run", bundle, carry_weights=job.carry_weights, progress=job.progress)
    with bundle.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    entry = plan.entries[0]
    return Made(
        because=plan.because,
        engine=entry.candidate.settings.engine,
        speedup=_speedup(plan),
        bundle=str(bundle),
        uploaded=_uploaded(job, bundle, sha256),
        sha256=sha256,
        size_bytes=bundle.stat().st_size,
        run_dir=str(folder / "run"),
        seconds=time.monotonic() - began,
    )


def _folder(job: Job) -> Path:
    """Where this job's files lie, by its key: whoever asks again finds what was done."""
    above = Path(job.work) if job.work else cache_home() / "fleet"
    above.mkdir(parents=True, exist_ok=True)
    return private_directory(above / job.key[:32])


def _tuned(job: Job, run_dir: Path) -> Plan:
    there = RunDir(run_dir)
    if there.is_finished and there.plan.is_file():
        plan = there.open_plan()
        if plan.entries or _is_final(run_dir):
            return plan
    common: dict[str, Any] = {"budget": job.budget_s, "progress": job.progress}
    if there.holds_run:
        return tuning.tune(resume=run_dir, **common)
    return tuning.tune(job.target, out=run_dir, dynamic=_dynamic(job) or None, **job.options, **common)


def _is_final(run_dir: Path) -> bool:
    """Whether a run that keeps eager had the time to tell: nothing was left untried, and no gain unconfirmed."""
    verdicts = [line.verdict for line in RunDir(run_dir).lines() if isinstance(line, VerdictLine)]
    won = any(one.outcome is Outcome.FASTER for verdict in verdicts[-1:] for one in verdict.comparisons)
    return not won and all(verdict.not_reached is None for verdict in verdicts[-1:])


def _dynamic(job: Job) -> tuple[DynamicDim, ...]:
    """What varies: as declared, and in a trace as far as nothing is declared."""
    if not job.trace:
        return job.dynamic
    from compilot.api.tracing import read_trace

    with tempfile.TemporaryDirectory(prefix="compilot-fleet-") as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(job.trace)
        found = read_trace(path)
    declared = {(dim.input, dim.dim) for dim in job.dynamic}
    varying = [_of_trace(name, sizes.min, sizes.max) for name, sizes in found.dims.items() if sizes.min < sizes.max]
    return (*job.dynamic, *(dim for dim in varying if (dim.input, dim.dim) not in declared))


def _of_trace(name: str, low: int, high: int) -> DynamicDim:
    path, _, dim = name.rpartition(":")
    return DynamicDim(input=path, dim=int(dim), min=low, max=high)


def _speedup(plan: Plan) -> float | None:
    compared = plan.entries[0].evidence.versus_eager
    return compared.ratio if compared is not None else None


def _uploaded(job: Job, bundle: Path, sha256: str) -> str:
    """Where whoever asks can get it: a place for uploads, which `store gc` clears after a day."""
    if not job.upload:
        return ""
    name = f"{UPLOADS}/{sha256}"
    Remote(job.upload).put(name, bundle)
    return name
