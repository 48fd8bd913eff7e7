"""A fleet on this machine: real processes identify, pack and bring bundles to a store, from which models are loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import compilot
from compilot._cores import usable_cores
from compilot.artifacts.store import listing
from compilot.artifacts.store.remote import Remote
from compilot.errors import StaleBundle, UntrustedBundle
from compilot.fleet import running
from compilot.fleet.crew import LocalCrew
from compilot.fleet.manifest import read_manifest

ROOT = Path(__file__).parents[2]
NODE = """
import sys
sys.path[:0] = [{data!r}]
from pathlib import Path
import bundling
from bundle_help import tiny_run
from compilot.fleet import on_node


def tuned(job, run_dir):
    if not (run_dir / "plan.json").exists():
        run_dir.mkdir(parents=True)
        tiny_run(run_dir, "onnxruntime", job.target.rpartition(":")[2])
    return on_node.RunDir(run_dir).open_plan()


on_node._tuned = tuned  # one real build in place of a search
identify, make_bundle, fingerprint = on_node.identify, on_node.make_bundle, on_node.fingerprint
"""


class OneCore(LocalCrew):
    """This machine, as a process with one core sees it."""

    def command(self) -> list[str]:
        return ["taskset", "-c", "0", sys.executable]


class Two:
    """Two kinds of machines on one host: fingerprints differ, since cores and threads do."""

    def __init__(self, folder: Path) -> None:
        self.crews = {"whole": LocalCrew(folder), "core": OneCore(folder)}
        self.calls: list[str] = []

    def nodes(self) -> Sequence[Any]:
        return tuple(crew.nodes()[0]._replace(id=name, labels={"pool": name}) for name, crew in self.crews.items())

    def call(self, node_id: str, function: str, payload: bytes) -> Any:
        self.calls.append(function)
        return self.crews[node_id].call(node_id, function.replace("compilot.fleet.on_node", "fleet_node"), payload)

    def close(self) -> None:
        for crew in self.crews.values():
            crew.close()


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="two kinds of machines on one host need two cores")
def test_what_a_fleet_pushes_is_loaded_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ROOT / "tests" / "data"
    (tmp_path / "fleet_node.py").write_text(NODE.format(data=str(data)))
    (tmp_path / "fleet.toml").write_text(f'[models]\ntiny = {{ target = "{data / "bundling.py"}:one" }}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    compilot.keys.new("release")
    crew = Two(tmp_path)
    monkeypatch.setattr(running, "crew_for", lambda on, folder, left_out: nullcontext(crew))
    try:
        report = compilot.fleet.run("fleet.toml", "store", sign="release", progress=False)
        assert [row.state.value for row in report.rows] == ["pushed", "pushed"], report.rows
        again = compilot.fleet.run("fleet.toml", "store", sign="release", progress=False)
        assert again.sentence.startswith("nothing to do")
    finally:
        crew.close()
    entries = listing(Remote("store")).entries
    assert {entry.fingerprint.machine.cores for entry in entries} == {1, usable_cores()}
    with pytest.raises(UntrustedBundle):
        compilot.load("store", model="Tiny", require_signature=True)
    fast = compilot.load("store", model="Tiny", trusted_keys=["release.pub"], require_signature=True)
    sys.path.insert(0, str(data))
    import bundling

    model, args, kwargs = bundling.one()
    with torch.no_grad():
        assert torch.allclose(fast(*args, **kwargs)["logits"], model(*args, **kwargs)["logits"], atol=1e-5)


@pytest.mark.slow
def test_a_bundle_with_a_false_fingerprint_is_never_loaded(tmp_path: Path) -> None:
    """Whatever a machine is called: what its bundle says about itself decides, here as on every machine."""
    from bundle_help import reseal, tiny_run, with_machine

    bundle = compilot.pack(tiny_run(tmp_path / "run", "onnxruntime"), tmp_path / "a.cpbundle", progress=False).bundle
    assert compilot.load(bundle) is not None
    false = reseal(bundle, tmp_path / "false", lambda _, manifest: with_machine(manifest, "torch", "9.9"))
    with pytest.raises(StaleBundle, match=r"torch: the plan was made with 9[.]9"):
        compilot.load(false)
    compilot.push(false, tmp_path / "store")
    with pytest.raises(compilot.NoneFits, match=r"needs torch 9[.]9"):
        compilot.load(tmp_path / "store", model="Tiny")


def test_the_examples_are_good() -> None:
    import yaml

    asked = read_manifest(ROOT / "examples" / "fleet.toml")
    assert [line.name for line in asked.lines] == ["mlp", "resnet18"]
    job = yaml.safe_load((ROOT / "examples" / "kuberay.yaml").read_text())
    assert job["kind"] == "RayJob"
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["compilot", "fleet"]
    from typer.main import get_command

    from compilot.cli.main import app

    command = get_command(app).commands["fleet"]  # type: ignore[attr-defined]
    command.make_context("fleet", words[2:])  # every option is one
    for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    pods = job["spec"]["rayClusterSpec"]
    selected = read_manifest(ROOT / "examples" / "kuberay-fleet.toml").machines.values()
    labels = {"=".join(label) for machine in selected for label in machine.labels.items()}
    assert labels == {group["rayStartParams"]["labels"] for group in pods["workerGroupSpecs"]}
    assert pods["headGroupSpec"]["rayStartParams"]["labels"] not in labels  # nothing is tuned there
