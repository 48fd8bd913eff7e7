"""A crew without machines: nodes with fingerprints, models by digest, bundles small enough to make by the dozen."""

from __future__ import annotations

import hashlib
import random
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from compilot.artifacts.planfile import save_plan
from compilot.artifacts.store.fetching import digest_of_file
from compilot.artifacts.store.remote import UPLOADS, Remote
from compilot.errors import CompilotError, NodeLost
from compilot.fleet.jobs import Identified, Identify, Job, Made
from compilot.packing.writing import publish, seal
from compilot.records import (
    BUNDLE_SCHEMA,
    Fingerprint,
    MachineFingerprint,
    Manifest,
    ModelFingerprint,
    Weights,
    encode,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))


class Node(NamedTuple):
    """A node that says what it is."""

    id: str
    name: str
    host: str
    labels: dict[str, str]
    fingerprint: MachineFingerprint


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class FakeCrew:
    """Does at once what it is asked for; `weights`, `errors` and `lies` are what a test changes."""

    def __init__(self, folder: Path, plan: Any, nodes: list[Node]) -> None:
        self.folder, self.plan, self._nodes = folder, plan, nodes
        self.jobs: list[tuple[str, Job]] = []  # in their order, with the node
        self.weights: dict[str, str] = {}  # target -> version of its weights
        self.unopened: dict[str, str] = {}  # target -> why it cannot be opened
        self.errors: dict[tuple[str, str], list[CompilotError]] = {}  # (line, node) -> what comes before it works
        self.eager: set[str] = set()  # lines that keep eager
        self.final = True  # whether they had the time to tell
        self.lost: set[str] = set()  # nodes that are gone when they are asked for models
        self.lies: dict[str, MachineFingerprint] = {}  # node -> what it truly is

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes)

    def call(self, node_id: str, function: str, payload: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        try:
            future.set_result(encode(getattr(self, function.partition(":")[2])(node_id, payload)))
        except CompilotError as problem:
            future.set_exception(problem)
        return future

    def close(self) -> None:
        pass

    def identify(self, node_id: str, payload: bytes) -> Identified:
        if node_id in self.lost:
            raise NodeLost(f"node {node_id} went away")
        targets = msgspec.json.decode(payload, type=Identify).targets
        return Identified(models=tuple(self.unopened.get(one) or self.model(one) for one in targets))

    def model(self, target: str) -> ModelFingerprint:
        return ModelFingerprint(
            class_name=target.partition(":")[2].title(),
            code_sha256=digest("code", target),
            structure_sha256="b" * 64,
            parameters_sha256="c" * 64,
            parameter_count=1,
            parameter_bytes=4,
            weights_sha256=digest(target, self.weights.get(target, "first")),
        )

    def make_bundle(self, node_id: str, payload: bytes) -> Made:
        job = msgspec.json.decode(payload, type=Job)
        self.jobs.append((node_id, job))
        if waiting := self.errors.get((job.name, node_id)):
            raise waiting.pop(0)
        if job.name in self.eager:
            return Made(eager=True, final=self.final, because="nothing was faster", seconds=1.0)
        node = next(one for one in self._nodes if one.id == node_id)
        bundle = self.bundle(job, self.lies.get(node_id, node.fingerprint))
        uploaded = ""
        if job.upload:
            uploaded = f"{UPLOADS}/{digest_of_file(bundle)}"
            Remote(job.upload).put(uploaded, bundle)
        return Made(
            because="2.00x faster than eager",
            engine="openvino",
            speedup=2.0,
            bundle=str(bundle),
            uploaded=uploaded,
            sha256=digest_of_file(bundle),
            size_bytes=bundle.stat().st_size,
            seconds=1.0,
        )

    def bundle(self, job: Job, machine: MachineFingerprint) -> Path:
        staged = self.folder / f"staged-{len(self.jobs)}-{random.getrandbits(32)}"
        (staged / "artifacts").mkdir(parents=True)
        (staged / "artifacts" / "model.bin").write_bytes(job.key.encode() * 10)
        save_plan(self.plan, staged / "plan.json")
        model = self.model(job.target)
        manifest = Manifest(
            schema=BUNDLE_SCHEMA,
            compilot="0.1",
            created="2026-01-01T00:00:00+00:00",
            label=model.class_name,
            engine="openvino",
            engines=("openvino",),
            fingerprint=Fingerprint(machine=machine, model=model),
            weights=Weights.BAKED,
        )
        seal(staged, manifest, None)
        publish(staged, staged.with_suffix(".cpbundle"), as_folder=False)
        return staged.with_suffix(".cpbundle")


@pytest.fixture
def machines() -> tuple[MachineFingerprint, MachineFingerprint]:
    from store_fakes import HERE

    return HERE, msgspec.structs.replace(HERE, cpu_model="Other CPU", cpu_isa=("avx2", "avx512f"), cores=8, threads=8)


@pytest.fixture
def crew(tmp_path: Path, small_run: Any, machines: tuple[MachineFingerprint, MachineFingerprint]) -> FakeCrew:
    """Three nodes of two kinds."""
    small, large = machines
    nodes = [
        Node("a", "a", "host-a", {"pool": "small"}, small),
        Node("b", "b", "host-b", {"pool": "large"}, large),
        Node("c", "c", "host-c", {"pool": "large"}, large),
    ]
    (tmp_path / "made").mkdir()
    return FakeCrew(tmp_path / "made", small_run.plan, nodes)
