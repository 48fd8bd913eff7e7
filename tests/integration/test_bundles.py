"""Bundles with real engines and real processes: pack, move, start elsewhere; refuse what does not fit.

The run directories are made by hand from one real build each, so that no search and no timing is needed. Bundles that
are damaged, stale or asked for something else: test_bundle_faults.py, test_stale_bundles.py, test_call_faults.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundling
import pytest
import torch
from bundle_help import reseal, serve, told, with_machine
from typer.testing import CliRunner

import compilot
from compilot.artifacts import cache
from compilot.artifacts.bundle import open_bundle, read_manifest
from compilot.artifacts.bundle_trust import Trust
from compilot.cli.main import app
from compilot.errors import BundleError, CompilotWarning, NoFallback
from compilot.files.locks import file_lock
from compilot.files.private import private_directory
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Manifest
from compilot.runtime import golden

NOBODY = 65534
EXTRA = {"extra": {"bias": torch.ones(32)}}
Packer = Callable[..., Path]
INTERRUPTED_WAIT = """
import signal, sys
from compilot.artifacts import unpack
from compilot.runtime import bundles

def told_wait(*args, real=bundles.wait, **kwargs):
    print("waiting", flush=True)
    return real(*args, **kwargs)

unpack.LOCK_WAIT_S, bundles.wait = 3600.0, told_wait
import compilot
signal.signal(signal.SIGINT, signal.default_int_handler)
compilot.load(sys.argv[1])
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def right(size: int = 1) -> torch.Tensor:
    with torch.no_grad():
        answer: torch.Tensor = bundling.model()(bundling.batch(size), **EXTRA)["logits"]
    return answer


def ask(fast: Any, size: int = 1) -> torch.Tensor:
    with torch.no_grad():
        answer: torch.Tensor = fast(bundling.batch(size), **EXTRA)["logits"]
    return answer


# ------------------------------------------------------------------------------------------------- start elsewhere


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", pytest.param("aoti", marks=pytest.mark.compiles)])
def test_a_moved_bundle_starts_without_model_compiler_inductor_or_home(
    packed: Packer, engine: str, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / "model.cpbundle"
    moved.parent.mkdir()
    shutil.copy(packed(engine), moved)
    (tmp_path / "tmp").mkdir()
    nowhere = {"HOME": "/dev/null/home", "COMPILOT_CACHE": "", "XDG_CACHE_HOME": ""}  # not even root can write there
    answer = told(serve(moved, PATH="/nonexistent", TMPDIR=str(tmp_path / "tmp"), **nowhere))
    assert answer.get("error", 1.0) < 1e-4, answer
    assert answer["keys"] == ["logits", "hidden", "none"]
    assert answer["fast"] == 3
    assert answer["heavy"] == []
    assert list(answer["startup"]) == ["open", "verify", "load", "golden call"]
    assert (tmp_path / f"tmp/compilot-{os.getuid()}/bundles").is_dir()


def test_ten_processes_at_once_from_a_cold_cache_all_answer(packed: Packer, own_cache: Path) -> None:
    bundle = packed("onnxruntime")
    answers = [told(process) for process in [serve(bundle) for _ in range(10)]]
    assert all(answer.get("error", 1.0) < 1e-4 for answer in answers), answers
    assert sum(answer["unpacked"] for answer in answers) == 1
    entries = [p for p in (own_cache / "bundles").iterdir() if p.is_dir()]
    assert len(entries) == 1


def test_ctrl_c_ends_a_start_that_waits_for_another_process(packed: Packer, own_cache: Path) -> None:
    with open_bundle(packed("onnxruntime"), Trust()) as bundle:
        place = private_directory(own_cache / "bundles") / bundle.digest
    command = [sys.executable, "-c", INTERRUPTED_WAIT, str(packed("onnxruntime"))]
    with file_lock(cache.lock_path(place)) as lock:
        assert lock.held
        starting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert starting.stdout is not None
        assert starting.stdout.readline() == "waiting\n"
        starting.send_signal(signal.SIGINT)
        _, err = starting.communicate(timeout=300)  # the lock would be waited for an hour
    assert starting.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert [path for path in place.parent.iterdir() if path != cache.lock_path(place)] == []


def test_another_number_of_threads_is_warned_about_and_works(packed: Packer) -> None:
    answer = told(serve(packed("onnxruntime"), OMP_NUM_THREADS="1"))
    assert answer.get("error", 1.0) < 1e-4, answer
    assert any("number of torch threads" in text and "unproven" in text for text in answer["warnings"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can go on as another user")
def test_another_user_starts_a_bundle_that_root_put_there(packed: Packer) -> None:
    with tempfile.TemporaryDirectory() as name:
        place, home = Path(name) / "model.cpbundle", Path(name) / "home"
        Path(name).chmod(0o755)
        shutil.copy(packed("onnxruntime"), place)
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        answer = told(serve(place, NOBODY, HOME=str(home), COMPILOT_CACHE="", XDG_CACHE_HOME=""))
        assert answer.get("error", 1.0) < 1e-4, answer
        assert answer["fast"] == 3
        assert (home / ".cache/compilot/bundles").stat().st_uid == NOBODY


def test_a_folder_bundle_is_used_in_place(packed: Packer, own_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.unpack_archive(packed("onnxruntime"), folder, "zip")
    torch.testing.assert_close(ask(compilot.load(folder)), right(), rtol=1e-4, atol=1e-5)
    assert not own_cache.exists()


# ------------------------------------------------------------------------------------------------- with the model


def test_two_runs_make_one_bundle_with_two_entries(tuned: Packer, tmp_path: Path) -> None:
    runs = [tuned("onnxruntime", name) for name in ("one", "four")]
    pack(runs, tmp_path / "both.cpbundle", PackOptions(), Observer())
    fast = compilot.compile(bundling.model(), tmp_path / "both.cpbundle", strict=True)
    for size in (1, 4, 1, 4):
        torch.testing.assert_close(ask(fast, size), right(size), rtol=1e-4, atol=1e-5)
    assert fast.stats().fallbacks == {}
    assert fast.stats().fast == 4
    torch.testing.assert_close(ask(fast, 2), right(2))
    assert sum(fast.stats().fallbacks.values()) == 1
    with pytest.raises(compilot.InputError, match="same calls"):
        pack([runs[0], runs[0]], tmp_path / "twice.cpbundle", PackOptions(), Observer())


def test_several_bundles_live_in_one_process(packed: Packer) -> None:
    first, second = compilot.load(packed("onnxruntime")), compilot.load(packed("openvino"))
    for _ in range(3):
        for fast in (first, second):
            torch.testing.assert_close(ask(fast), right(), rtol=1e-4, atol=1e-5)
    assert [fast.stats().fast for fast in (first, second)] == [3, 3]


def test_a_refused_bundle_leaves_the_model_as_it_was(packed: Packer, tmp_path: Path) -> None:
    def spoil(folder: Path, manifest: Manifest) -> Manifest:
        path = folder / "golden/0-outputs.safetensors"
        golden.save({name: tensor + 1.0 for name, tensor in golden.read(path).items()}, path)
        return manifest

    wrong = reseal(packed("onnxruntime"), tmp_path / "wrong", spoil)
    model = bundling.model()
    with pytest.raises(BundleError, match="golden call"):
        compilot.compile(model, wrong, strict=True, inplace=True)
    assert type(model) is bundling.Tiny
    with pytest.warns(CompilotWarning, match="golden call"):
        compilot.compile(model, wrong, inplace=True)
    torch.testing.assert_close(ask(model), right())


def test_a_whole_model_with_carried_weights_still_needs_no_model(packed: Packer) -> None:
    fast = compilot.load(packed("onnxruntime", carry_weights=True))
    torch.testing.assert_close(ask(fast), right(), rtol=1e-4, atol=1e-5)


def test_verify_tells_all_and_its_exit_code_is_a_gate(packed: Packer, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["verify", "--time", "--json", str(packed("onnxruntime"))])
    found = json.loads(run.stdout)
    assert run.exit_code == 0
    assert found["fits"]
    assert list(found["startup"])[-2:] == ["golden call", "first call"]
    cut = tmp_path / "cut.cpbundle"
    cut.write_bytes(packed("onnxruntime").read_bytes()[:-100])
    run = CliRunner().invoke(app, ["verify", str(cut)])
    assert run.exit_code == 1
    assert "refused" in run.stdout
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "none.cpbundle")]).exit_code == 2


def test_a_plan_that_keeps_eager_packs_too(packed: Packer) -> None:
    assert read_manifest(packed(None)).sentences == ("eager is kept: made by hand",)
    fast = compilot.compile(bundling.model(), packed(None), strict=True)
    torch.testing.assert_close(ask(fast), right())
    with pytest.raises(compilot.InputError, match="keeps the model eager"):
        compilot.compile(bundling.model(), packed(None), keep_model=False)
    with pytest.raises(NoFallback, match="keeps the model as it is"):
        compilot.load(packed(None))


def test_carried_weights_go_into_the_model(packed: Packer) -> None:
    bundle = packed(None, carry_weights=True)
    torch.manual_seed(1)
    stranger = bundling.Tiny().eval()
    fast = compilot.compile(stranger, bundle, strict=True)
    torch.testing.assert_close(ask(fast), right())


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(("field", "value"), [("threads", 64), ("cores", 64), ("cpu_model", "another")])
def test_an_unproven_difference_is_warned_about(packed: Packer, tmp_path: Path, field: str, value: Any) -> None:
    other = reseal(packed("onnxruntime"), tmp_path / "other", lambda _, manifest: with_machine(manifest, field, value))
    with pytest.warns(CompilotWarning, match="speed is unproven"):
        fast = compilot.load(other)
    torch.testing.assert_close(ask(fast), right(), rtol=1e-4, atol=1e-5)


def test_a_wrong_golden_answer_is_never_served(packed: Packer, tmp_path: Path) -> None:
    def spoil(folder: Path, manifest: Manifest) -> Manifest:
        path = folder / "golden/0-outputs.safetensors"
        golden.save({name: tensor + 1.0 for name, tensor in golden.read(path).items()}, path)
        return manifest

    wrong = reseal(packed("onnxruntime"), tmp_path / "wrong", spoil)
    with pytest.raises(BundleError, match=r"golden call: output\['logits'\] has an RMSE"):
        compilot.load(wrong)
    with pytest.warns(CompilotWarning, match="golden call"):
        fast = compilot.compile(bundling.model(), wrong)
    torch.testing.assert_close(ask(fast), right())


def test_files_that_changed_since_the_run_are_not_packed(tuned: Packer, tmp_path: Path) -> None:
    run = shutil.copytree(tuned("onnxruntime"), tmp_path / "run")
    model = next(run.glob("work/*/optimised.onnx"))
    model.write_bytes(model.read_bytes() + b"\0")
    with pytest.raises(compilot.UserError, match=r"optimised\.onnx has \d+ bytes instead of \d+"):
        pack([run], tmp_path / "x.cpbundle", PackOptions(), Observer())
    assert not (tmp_path / "x.cpbundle").exists()


def test_two_processes_packing_to_one_place_leave_one_whole_bundle(tuned: Packer, tmp_path: Path) -> None:
    run = tuned("onnxruntime")
    code = "from compilot.cli.main import run; run()"
    command = [sys.executable, "-c", code, "pack", str(run), "-o", str(tmp_path / "x.cpbundle"), "--quiet"]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    torch.testing.assert_close(ask(compilot.load(tmp_path / "x.cpbundle")), right(), rtol=1e-4, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
