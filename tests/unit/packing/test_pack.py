"""What goes into a bundle's manifest, and which runs do not go together: no worker, no engine."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.artifacts.shipments import keep_shipment
from compilot.engines.files import file_record
from compilot.errors import InputError
from compilot.packing import PackOptions, pack
from compilot.packing.golden import Made
from compilot.progress import Observer
from compilot.records import (
    Golden,
    Guard,
    Manifest,
    PaddedDim,
    PaddedInput,
    ProcessSettings,
    Shipment,
    SplitCalls,
    Weights,
)
from compilot.runtime.bundles import opened_bundle

AS_IT_IS = PackOptions(twin=False)
STORY = importlib.import_module("compilot.packing.pack")


class Worker:
    """Stands in for the process that makes golden calls: it sees each run's weights."""

    def __init__(self) -> None:
        self.weights: dict[str, str] = {}  # by the run's folder
        self.frozen = False

    def make_golden(self, run: Any, entry: Any, place: Path, staged: Path, number: int) -> Made:
        golden = Golden(inputs="plan.json", outputs="plan.json", expected=())
        return Made(golden, (), 0.1, self.weights[run.folder.name], self.frozen)

    def save_weights(self, run: Any, place: Path, path: Path) -> str:
        path.write_bytes(b"weights")
        return self.weights[run.folder.name]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(STORY, "make_golden", made.make_golden)
    monkeypatch.setattr(STORY, "save_weights", made.save_weights)
    return made


@pytest.fixture
def runs(small_run: Any, tmp_path: Path) -> list[Path]:
    """Two finished runs of one model, for other inputs."""
    small_run.header = msgspec.structs.replace(
        small_run.header, argv=("/opt/bin/compilot", "tune", "net.py:net", "--budget", "90s")
    )
    folders = []
    for inputs in (1, 2):
        folder = small_run.write(tmp_path / f"run{inputs}")
        (folder / "model.bin").write_bytes(b"model")
        entry = msgspec.structs.replace(
            small_run.plan.entries[0],
            guard=Guard(positional=inputs, keywords=(), tensors=()),
            artifacts=(file_record(folder / "model.bin", "model.bin"),),
        )
        save_plan(msgspec.structs.replace(small_run.plan, entries=(entry,)), folder / "plan.json")
        keep_shipment(Shipment(sys_path=(), cwd=""), folder)
        folders.append(folder)
    return folders


def manifest(runs: list[Path], options: PackOptions = AS_IT_IS) -> Manifest:
    return pack(runs, runs[0].parent / "model.cpbundle", options, Observer()).manifest


def test_two_sets_of_weights_do_not_go_into_one_bundle(runs: list[Path], worker: Worker, tmp_path: Path) -> None:
    worker.weights = {"run1": "a" * 64, "run2": "b" * 64}
    with pytest.raises(InputError, match=r"the model of .*run2 has other weights than the rest of the bundle"):
        manifest(runs)
    assert not (tmp_path / "model.cpbundle").exists()
    worker.weights["run2"] = "a" * 64
    assert len(manifest(runs).entries) == 2


def test_runs_with_other_process_settings_do_not_go_into_one_bundle(runs: list[Path], worker: Worker) -> None:
    worker.weights = {"run1": "a" * 64, "run2": "a" * 64}
    one_thread = msgspec.structs.replace(load_plan(runs[1] / "plan.json"), process=ProcessSettings(threads=1))
    save_plan(one_thread, runs[1] / "plan.json")
    with pytest.raises(InputError, match=r"run2 has other process settings .* than .*run1.*: pack them apart\.$"):
        manifest(runs)
    manifest(runs[1:])
    bundle = opened_bundle(runs[0].parent / "model.cpbundle", Trust())
    assert bundle.plan.process == ProcessSettings(threads=1)


def test_entries_of_a_plan_for_many_sizes_are_packed_as_they_were_replayed(
    runs: list[Path], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin would be raced at one size, and would cut no calls."""
    asked: list[str] = []
    monkeypatch.setattr(STORY, "_or_twin", lambda run, entry, observer: (asked.append(entry.name), (entry, ""))[1])
    worker.weights = {"run1": "a" * 64}
    plan = load_plan(runs[0] / "plan.json")
    [entry] = plan.entries
    batch = PaddedDim(min=1, size=32, inputs=(PaddedInput(path="args[0]", dim=0),), outputs=())
    cut = msgspec.structs.replace(entry, split=SplitCalls(rows=8, min=9, batch=batch))
    behind = msgspec.structs.replace(entry, guard=Guard(positional=3, keywords=(), tensors=()))
    for entries, wanted in (((entry,), 1), ((cut,), 0), ((entry, behind), 0)):
        save_plan(msgspec.structs.replace(plan, entries=entries), runs[0] / "plan.json")
        asked.clear()
        manifest(runs[:1], PackOptions())
        assert len(asked) == wanted


def test_carried_weights_are_those_of_the_entries(
    runs: list[Path], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.weights = {"run1": "a" * 64}
    carried = manifest(runs[:1], AS_IT_IS._replace(carry_weights=True))
    assert (carried.weights, carried.fingerprint.model.weights_sha256) == (Weights.CARRIED, "a" * 64)
    monkeypatch.setattr(STORY, "save_weights", lambda *_: "b" * 64)
    with pytest.raises(InputError, match="other weights than the rest of the bundle"):
        manifest(runs[:1], AS_IT_IS._replace(carry_weights=True))


@pytest.mark.parametrize(("frozen", "digest"), [(True, "a" * 64), (False, None)])
def test_weights_are_hashed_where_they_are_frozen(
    runs: list[Path], worker: Worker, frozen: bool, digest: str | None
) -> None:
    worker.weights, worker.frozen = {"run1": "a" * 64}, frozen
    packed = manifest(runs[:1])
    assert packed.weights is Weights.MODEL  # an inductor plan compiles the user's model
    assert packed.fingerprint.model.weights_sha256 == digest


def test_the_manifest_says_how_it_was_tuned(runs: list[Path], worker: Worker) -> None:
    worker.weights = {"run1": "a" * 64, "run2": "a" * 64}
    built = manifest(runs[:1]).built
    assert built["tuned by"] == "compilot tune net.py:net --budget 90s"
    assert (built["budget"], built["objective"], built["torch"]) == ("90 s", "latency", "2.13.0")
    (runs[0] / "journal.jsonl").unlink()
    both = manifest(runs).built
    assert [name for name in both if name.startswith("tuned by")] == ["tuned by 2"]


def with_setting(run: Path, value: str) -> None:
    """As if the calls of this run depended on a setting of the model that other calls do not read."""
    plan = load_plan(run / "plan.json")
    model = msgspec.structs.replace(plan.fingerprint.model, input_settings={"config.problem_type": value})
    fingerprint = msgspec.structs.replace(plan.fingerprint, model=model)
    save_plan(msgspec.structs.replace(plan, fingerprint=fingerprint), run / "plan.json")


def test_a_bundle_has_the_settings_that_calls_of_any_run_depend_on(runs: list[Path], worker: Worker) -> None:
    worker.weights = {"run1": "a" * 64, "run2": "a" * 64}
    with_setting(runs[1], "'regression'")
    packed = manifest(runs)
    assert packed.fingerprint.model.input_settings == {"config.problem_type": "'regression'"}
    bundle = opened_bundle(runs[0].parent / "model.cpbundle", Trust())
    assert bundle.plan.fingerprint == packed.fingerprint


def test_runs_that_depend_on_other_values_of_a_setting_are_apart(runs: list[Path], worker: Worker) -> None:
    worker.weights = {"run1": "a" * 64, "run2": "a" * 64}
    with_setting(runs[0], "None")
    with_setting(runs[1], "'regression'")
    with pytest.raises(InputError, match=r"run2 is about something else than .*run1: .*'config\.problem_type'.* from"):
        manifest(runs)
