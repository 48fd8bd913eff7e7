"""Why was this start cold? Ten causes really brought about, ten right answers; and the command around them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from compilot._tree import Call
from compilot.api import whycold
from compilot.artifacts.planfile import save_plan
from compilot.cli.main import app
from compilot.diagnose.cachemiss import Cause, Weight, not_compared, why_cold
from compilot.identity.keys import (
    KeyComponents,
    key_components,
    note_start,
    plan_components,
    relevant_environment,
    save_components,
)
from compilot.identity.model import model_fingerprint
from compilot.records import Settings, Shapes
from compilot.runtime.guards import make_guard
from compilot.workload.target import load_target

SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()

def net():
    return Net(), (torch.zeros(2, 4),)
"""


class Desk:
    """One model file and one cache folder; `start` says what a start there and then depends on."""

    def __init__(self, folder: Path) -> None:
        self.file, self.cache = folder / "net.py", folder / "cache"
        self.file.write_text(SOURCE)
        self.cache.mkdir()
        (self.cache / "kernel.so").touch()
        self.x: torch.Tensor = torch.zeros(2, 4)
        self.settings = Settings(engine="inductor")

    def start(self) -> KeyComponents:
        model: nn.Module = load_target(f"{self.file}:net").model
        call = Call((self.x,), {})
        guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=torch.is_grad_enabled())
        fingerprint = model_fingerprint(model)
        return key_components(settings=self.settings, guard=guard, model=fingerprint, cache_dir=self.cache)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@contextlib.contextmanager
def threads(desk: Desk) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def config(desk: Desk) -> Iterator[None]:
    from torch._inductor import config

    with config.patch({"cpp.simdlen": 256}):
        yield


@contextlib.contextmanager
def default_dtype(desk: Desk) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def compiler(desk: Desk) -> Iterator[None]:
    """The same compiler under another path."""
    link = desk.file.parent / "g++"
    link.symlink_to(shutil.which("g++") or "/usr/bin/g++")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(link))
        yield


@contextlib.contextmanager
def variable(desk: Desk) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE", "4096")
        yield


@contextlib.contextmanager
def disabled(desk: Desk) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
        yield


@contextlib.contextmanager
def code(desk: Desk) -> Iterator[None]:
    desk.file.write_text(SOURCE.replace("relu()", "relu() * 2"))
    yield


@contextlib.contextmanager
def parameters(desk: Desk) -> Iterator[None]:
    desk.file.write_text(SOURCE.replace("Net(), (", "Net().to(torch.bfloat16), ("))
    yield


@contextlib.contextmanager
def shape(desk: Desk) -> Iterator[None]:
    desk.x = torch.zeros(8, 4)
    yield


@contextlib.contextmanager
def dtype(desk: Desk) -> Iterator[None]:
    desk.x = torch.zeros(2, 4, dtype=torch.bfloat16)
    yield


@contextlib.contextmanager
def stride(desk: Desk) -> Iterator[None]:
    desk.x = torch.zeros(4, 2).t()
    yield


@contextlib.contextmanager
def grad_mode(desk: Desk) -> Iterator[None]:
    with torch.no_grad():
        yield


@contextlib.contextmanager
def emptied(desk: Desk) -> Iterator[None]:
    (desk.cache / "kernel.so").unlink()
    yield


@contextlib.contextmanager
def moved(desk: Desk) -> Iterator[None]:
    desk.cache = desk.cache.parent / "elsewhere"
    yield


@contextlib.contextmanager
def option(desk: Desk) -> Iterator[None]:
    desk.settings = Settings(engine="inductor", options={"freezing": True})
    yield


CAUSES = {
    threads: "threads",
    config: "config cpp.simdlen",
    default_dtype: "state default dtype",
    compiler: "compiler path",
    variable: "environment TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE",
    disabled: "caches",
    code: "code",
    parameters: "parameters",
    shape: "input args[0]",
    dtype: "input args[0]",
    stride: "input args[0]",
    grad_mode: "grad mode",
    emptied: "cache files",
    moved: "cache directory",
    option: "option freezing",
}


def test_an_equal_start_has_no_cause(desk: Desk) -> None:
    assert why_cold(desk.start(), desk.start()) == ()


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_an_induced_cause_is_the_first_answer(cause: object, desk: Desk) -> None:
    before = desk.start()
    with cause(desk):  # type: ignore[operator]
        after = desk.start()
    found = why_cold(before, after)
    assert found[0].component == CAUSES[cause]  # type: ignore[index]
    assert found[0].sentence.endswith(f"{found[0].old} -> {found[0].new}")
    assert found[0].old != found[0].new
    assert found[0].advice


# What cannot be brought about on one machine is changed in the record.
MACHINES = {
    "torch": ("2.12.1", "torch: 2.12.1 -> "),
    "python": ("3.10.1", "Python: 3.10.1 -> "),
    "compiler": ("g++ 9.4.0", "C++ compiler: g++ 9.4.0 -> "),
    "cpu_isa": (("avx2", "amx_tile"), "CPU instructions: gone or new: "),
}


@pytest.mark.parametrize("field", MACHINES)
def test_another_machine_is_named(field: str, desk: Desk) -> None:
    now = desk.start()
    value, said = MACHINES[field]
    other = msgspec.structs.replace(now, machine=msgspec.structs.replace(now.machine, **{field: value}))
    (cause,) = why_cold(other, now)
    assert cause.component == field
    assert cause.sentence.startswith(said)


def test_several_causes_come_the_most_decisive_first(desk: Desk) -> None:
    before = desk.start()
    with variable(desk), threads(desk), emptied(desk):
        found = why_cold(before, desk.start())
    assert [cause.component for cause in found][:2] == ["cache files", "threads"]
    assert [cause.weight for cause in found] == sorted(cause.weight for cause in found)
    assert found[-1].weight is Weight.LIKELY


def starts(folder: Path, *starts: str) -> dict[str, dict[str, int]]:
    """What torch's own cache said in fresh processes that share a cache folder, one after the other."""
    script = Path(__file__).with_name("start_often.py")
    command = [sys.executable, str(script), str(folder), *starts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


REALLY = {
    "config": ("epilogue_fusion=false", "compiler configuration epilogue_fusion: default -> False"),
    "threads": ("torch.set_num_threads=7", "number of torch threads: "),
    "precision": ('torch.set_float32_matmul_precision="high"', "torch's matmul precision: highest -> high"),
}


@pytest.mark.slow
def test_where_torch_really_missed_the_cause_is_named_and_where_it_hit_there_is_none(tmp_path: Path) -> None:
    changed = [f"{name},{change}" for name, (change, _) in REALLY.items()]
    said = starts(tmp_path, "first", "same", *changed)
    missed, hit = {"hit": 0, "miss": 1}, {"hit": 1, "miss": 0}
    assert said == {"first": missed, "same": hit, **dict.fromkeys(REALLY, missed)}
    assert "nothing that was recorded differs" in _ask(tmp_path / "first.json", tmp_path / "same.json")
    for name, (_, cause) in REALLY.items():
        told = _ask(tmp_path / "first.json", tmp_path / f"{name}.json")
        assert f"1. {cause}" in told
        assert "2. " not in told


def test_secrets_are_not_written_down() -> None:
    found = relevant_environment({"TORCHINDUCTOR_REDIS_URL": "redis://me:pw@host", "HOME": "/root", "CXX": "g++"})
    assert set(found) == {"TORCHINDUCTOR_REDIS_URL", "CXX"}
    assert "pw" not in found["TORCHINDUCTOR_REDIS_URL"]


def _ask(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["why-cold", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_compares_two_key_files(desk: Desk, tmp_path: Path) -> None:
    save_components(desk.start(), tmp_path / "a.json")
    with threads(desk):
        save_components(desk.start(), tmp_path / "b.json")
    count = torch.get_num_threads()
    assert f"1. number of torch threads: {count} -> {count + 1}" in _ask(tmp_path / "a.json", tmp_path / "b.json")
    document = msgspec.json.decode(_ask(tmp_path / "a.json", tmp_path / "b.json", "--json"))
    assert [cause["component"] for cause in document["causes"]] == ["threads"]
    assert document["not_compared"] == []
    assert "nothing that was recorded differs" in _ask(tmp_path / "a.json", tmp_path / "a.json")


def test_the_command_compares_a_run_with_its_last_start(
    desk: Desk, run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "own"))
    built = desk.start()
    assert built.model is not None
    save_components(built, run_dir / "key.json")  # the plan's artifacts lie in the run's own folder
    (run_dir / "inductor").mkdir()
    note_start(Settings(engine="inductor"), built.model, run_dir)
    said = _ask(run_dir)
    assert "Compared with its last start on this machine" in said
    assert "1. the cache directory moved, and nothing compiled is in the new one" in said
    assert "Not compared" in said
    assert "the inputs (shapes, strides, dtypes, values), grad and train mode" in said


def test_a_plan_alone_is_compared_with_this_machine(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "own"))
    said = _ask(run_dir / "plan.json")
    assert "Compared with this machine now" in said
    assert "CPU: Some CPU -> " in said


def test_what_a_plan_does_not_hold_is_not_called_a_difference(small_run: object, desk: Desk) -> None:
    causes: tuple[Cause, ...] = why_cold(plan_components(small_run.plan), desk.start())  # type: ignore[attr-defined]
    assert causes
    assert not any(cause.component.startswith(("config", "environment", "state")) for cause in causes)
    told = not_compared(plan_components(small_run.plan), desk.start())  # type: ignore[attr-defined]
    assert [words.partition(",")[0] for words in told] == [
        "compiler configuration",
        "how many compiled files lie in the cache directory",
    ]


def test_an_empty_cache_explains_nothing_where_none_was_recorded(small_run: object, desk: Desk) -> None:
    with emptied(desk):
        causes = why_cold(plan_components(small_run.plan), desk.start())  # type: ignore[attr-defined]
    assert causes
    assert not any(cause.component.startswith("cache") for cause in causes)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "aoti", "eager", None])
def test_a_plan_that_compiles_nothing_has_no_cold_start(engine: str | None, small_run: object, tmp_path: Path) -> None:
    plan = small_run.plan  # type: ignore[attr-defined]
    entry = plan.entries[0]
    candidate = msgspec.structs.replace(entry.candidate, settings=Settings(engine=engine or "eager"))
    entries = (msgspec.structs.replace(entry, candidate=candidate),) if engine else ()
    save_plan(msgspec.structs.replace(plan, entries=entries), tmp_path / "plan.json")
    result = CliRunner().invoke(app, ["why-cold", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (0, "")  # an answer, not an error
    said = f"compiles nothing when it starts (it runs on {engine or 'eager'}), so no start is cold"
    assert said in result.stdout
    assert "trials.csv" in result.stdout
    document = json.loads(CliRunner().invoke(app, ["why-cold", str(tmp_path), "--json"]).stdout)
    assert said in document["answer"]
    assert document["causes"] == []


def test_the_entry_that_compiles_is_the_one_to_ask_about(
    desk: Desk, small_run: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "own"))
    plan = small_run.plan  # type: ignore[attr-defined]
    compiled = msgspec.structs.replace(plan.entries[0], artifacts_dir="work/compiled")
    other = msgspec.structs.replace(compiled.candidate, settings=Settings(engine="onnxruntime"))
    first = msgspec.structs.replace(compiled, candidate=other, artifacts_dir="work/files")
    save_plan(msgspec.structs.replace(plan, entries=(first, compiled)), tmp_path / "plan.json")
    save_components(desk.start(), tmp_path / "work/compiled/key.json")
    assert whycold.read(tmp_path).cache_dir == str(desk.cache)


def test_what_was_not_recorded_is_said_to_be_not_compared(desk: Desk) -> None:
    start = desk.start()
    bare = key_components(cache_dir=desk.cache)
    assert not_compared(start, start) == ()
    assert why_cold(start, bare) == ()
    assert [words.partition(" (")[0] for words in not_compared(start, bare)] == [
        "the inputs",
        "the model's code, structure and parameters",
        "the plan's settings",
    ]


def test_a_file_that_is_no_key_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    result = CliRunner().invoke(app, ["why-cold", str(tmp_path / "x.json")])
    assert result.exit_code == 2
    assert "is not a key file" in result.output


def test_what_is_not_there_is_refused_with_all_that_may_be_given(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["why-cold", str(tmp_path / "nope")])
    assert result.exit_code == 2
    assert "give a run directory, plan.json, a bundle or key.json." in result.output
