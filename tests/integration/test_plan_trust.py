"""Plan folders of real engines, started by fresh processes: foreign or damaged files are not loaded.

A library whose constructor leaves a file behind, and a pickle that does: neither file may appear.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundling
import msgspec
import pytest
from bundle_help import CANARY, served_by_eager, try_starts

from compilot.artifacts.cachelist import write_list
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.files.digests import file_record
from compilot.records import ArtifactFile

Packer = Callable[..., Path]


class Payload:
    """Leaves the canary's file behind when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def copied(run: Path, place: Path) -> Path:
    return shutil.copytree(run, place)


def work(run: Path) -> Path:
    return run / load_plan(run / "plan.json").entries[0].artifacts_dir


def rewrite(run: Path, files: tuple[ArtifactFile, ...]) -> None:
    """The plan with these files, as whoever owns it could write it."""
    plan = load_plan(run / "plan.json")
    entry = msgspec.structs.replace(plan.entries[0], artifacts=files)
    save_plan(msgspec.structs.replace(plan, entries=(entry,)), run / "plan.json")


def flip_each_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2 % 4096, len(data), 4096):
        data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_damaged_files_of_an_engine_are_refused_by_name(tuned: Packer, tmp_path: Path, engine: str) -> None:
    names = sorted(file.name for file in load_plan(tuned(engine) / "plan.json").entries[0].artifacts)
    runs = {name: copied(tuned(engine), tmp_path / name) for name in names}
    for name, run in runs.items():
        flip_each_page(work(run) / name)
    starts = {name: {"plan": run / "plan.json", "how": "compile"} for name, run in runs.items()}
    strict = {f"{name}, strict": {"plan": run / "plan.json", "how": "strict"} for name, run in runs.items()}
    whole = {"whole": {"plan": copied(tuned(engine), tmp_path / "whole"), "how": "strict"}}
    told = try_starts(tmp_path, {**starts, **strict, **whole})
    assert len(names) >= 3
    for name in names:
        assert served_by_eager(told[name], f"/{name} is not the file that was measured"), told[name]
        assert told[f"{name}, strict"]["refused"] == "ArtifactError"
    assert told["whole"]["fast"] == 1


@pytest.mark.compiles
def test_a_foreign_library_is_not_loaded(tuned: Packer, tmp_path: Path) -> None:
    run = copied(tuned("aoti"), tmp_path / "run")
    [library] = work(run).glob("model-*.so")
    source = tmp_path / "canary.c"
    source.write_text(CANARY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    damaged = {"damaged": {"plan": run, "how": "compile"}}
    files = load_plan(run / "plan.json").entries[0].artifacts
    told = try_starts(tmp_path, damaged)
    assert served_by_eager(told["damaged"], f"{library.name} has "), told
    rewrite(run, tuple(file_record(work(run) / file.name, file.name) for file in files))  # every digest right
    for loose in (library, library.parent, run):
        mode = loose.stat().st_mode
        loose.chmod(0o777)
        starts = {how: {"plan": run / "plan.json", "how": how} for how in ("compile", "strict")}
        told = try_starts(tmp_path, starts)
        assert served_by_eager(told["compile"], "may write to"), told
        assert told["strict"]["refused"] == "UntrustedPlan"
        loose.chmod(mode)
    assert not (tmp_path / "canary").exists()
    try_starts(tmp_path, {"trusted": {"plan": run, "how": "compile"}})  # what the owner vouches for is loaded
    assert (tmp_path / "canary").exists()


MAKE_CACHE = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
import bundling
import torch
from compilot._tree import Call
from compilot.artifacts.planfile import load_plan
from compilot.runtime.fast import attach
run = Path(sys.argv[2])
entry = load_plan(run / "plan.json").entries[0]
model, args, kwargs = bundling.one()
with torch.no_grad():
    attach(model, entry.candidate, entry.guard, run / entry.artifacts_dir).prepare(Call(args, kwargs))
"""


@pytest.fixture(scope="module")
def compiled(tuned: Packer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of torch.compile with its cache, listed in the plan."""
    run = copied(tuned("inductor"), tmp_path_factory.mktemp("compiled") / "run")
    made = [sys.executable, "-c", MAKE_CACHE, str(Path(bundling.__file__).parent), str(run)]
    subprocess.run(made, check=True, capture_output=True)  # a process of its own: this one has compiled other things
    assert list((work(run) / "inductor" / "fxgraph").rglob("*"))
    cache = write_list(work(run), "inductor/")
    assert cache is not None
    rewrite(run, (cache,))
    return run


@pytest.mark.compiles
def test_a_compile_cache_is_used_and_a_changed_one_is_not_opened(compiled: Path, tmp_path: Path) -> None:
    """torch unpickles what lies in its cache, and loads its libraries."""
    runs = {name: copied(compiled, tmp_path / name) for name in ("whole", "pickle", "library", "loose")}
    for name in ("pickle", "loose"):
        for entry in (path for path in (work(runs[name]) / "inductor" / "fxgraph").rglob("*") if path.is_file()):
            entry.write_bytes(pickle.dumps(Payload(tmp_path / "canary")))
    for library in (work(runs["library"]) / "inductor").rglob("*.main.so"):
        flip_each_page(library)
    cache = write_list(work(runs["loose"]), "inductor/")
    assert cache is not None
    rewrite(runs["loose"], (cache,))  # every digest right, but others may write to it
    (work(runs["loose"]) / "inductor").chmod(0o777)
    told = try_starts(tmp_path, {name: {"plan": run, "how": "compile"} for name, run in runs.items()})
    for one in told.values():  # without those that torch gives when it is imported
        one["warnings"] = [text for text in one["warnings"] if text.startswith("PlanNotUsedWarning")]
    assert told["whole"]["fast"] == 1
    assert told["whole"]["warnings"] == []
    assert served_by_eager(told["pickle"], "/fxgraph/"), told["pickle"]
    assert served_by_eager(told["library"], ".main.so is not the file that was measured"), told["library"]
    assert served_by_eager(told["loose"], "others may write to it"), told["loose"]
    assert not (tmp_path / "canary").exists()
    (work(runs["loose"]) / "inductor").chmod(0o700)
    try_starts(tmp_path, {"trusted": {"plan": runs["loose"], "how": "compile"}})
    assert (tmp_path / "canary").exists()  # torch does unpickle it, once the owner vouches for it
