"""Bundles of plans with regions of three engines: damaged, forged, packed elsewhere or for another model.

The same rows of faults as test_bundle_faults.py, test_stale_bundles.py and test_bundle_trust.py have for whole models.
Such bundles need the model's object, so `compilot.compile` is the way in: eager answers, one warning names the reason.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_help import Told, put_canary, reseal, with_machine
from regional_runs import DATA, regional, run_of

from compilot.artifacts.bundle import MANIFEST
from compilot.artifacts.signing import generate_key
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Manifest, Settings

BY_ENGINE = {"onnxruntime": "layers.[1-2]", "aoti": "layers.3", "openvino": "last"}
PARTS = regional(*((selector, Settings(engine=engine)) for engine, selector in BY_ENGINE.items()))
FILES = {"onnxruntime": "0/1/optimised.onnx", "aoti": "1/*/model-*.so", "openvino": "2/*/*.bin"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("regional")
    return pack([run_of(home / "run", PARTS)], home / "parts.cpbundle", PackOptions(twin=False), Observer()).path


def file_of(bundle: Path, engine: str) -> str:
    """The member that holds what an engine made of its region."""
    with zipfile.ZipFile(bundle) as archive:
        (name,) = fnmatch.filter(archive.namelist(), f"artifacts/0/regions/{FILES[engine]}")
    return name


def flipped(bundle: Path, name: str) -> bytes:
    """The bundle's bytes with one bit turned over in the middle of a member."""
    whole = bytearray(bundle.read_bytes())
    with zipfile.ZipFile(bundle) as archive:
        data = archive.read(name)
    whole[whole.index(data) + len(data) // 2] ^= 1
    return bytes(whole)


def without(bundle: Path, folder: Path, name: str) -> Path:
    """Resealed with every digest right, but a region's file is gone."""

    def change(inside: Path, manifest: Manifest) -> Manifest:
        (inside / name).unlink()
        return manifest

    return reseal(bundle, folder, change)


DAMAGED: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda bundle: b"",
    "cut-in-half": lambda bundle: bundle.read_bytes()[: bundle.stat().st_size // 2],
    "cut-at-the-end": lambda bundle: bundle.read_bytes()[:-1],
    **{f"a-region-of-{e}": lambda bundle, e=e: flipped(bundle, file_of(bundle, e)) for e in BY_ENGINE},  # type: ignore[misc]
    "list-of-regions": lambda bundle: flipped(bundle, "artifacts/0/regions.json"),
    "plan": lambda bundle: flipped(bundle, "plan.json"),
    "golden-answer": lambda bundle: flipped(bundle, "golden/0-outputs.safetensors"),
    "manifest": lambda bundle: flipped(bundle, MANIFEST),
}
ELSEWHERE: dict[str, tuple[dict[str, Any], str]] = {
    "torch": ({"torch": "2.12.1"}, "torch: the plan was made with 2.12.1, this process has 2."),
    "Python": ({"python": "3.10.4"}, "Python: the plan was made with 3.10, this process has 3."),
    "second-engine": ({"engines": {"openvino": "1.2.3"}}, "openvino: the plan was made with 1.2.3"),
    "first-engine": ({"engines": {"onnxruntime": "1.2.3"}}, "onnxruntime: the plan was made with 1.2.3"),
    "CPU": ({"cpu_isa": ("avx10_9",)}, "made with avx10_9, which this machine does not have"),
}


FROZEN = ("layers.1.up", "layers.3.up", "last")  # one weight in a region of each engine


def packed_elsewhere(bundle: Path, folder: Path, machine: dict[str, Any]) -> Path:
    """As another machine would have packed it, with a canary in its native code."""

    def change(inside: Path, manifest: Manifest) -> Manifest:
        put_canary(inside)
        for field, value in machine.items():
            manifest = with_machine(manifest, field, value)
        return manifest

    return reseal(bundle, folder, change)


def starts(home: Path, wanted: dict[str, dict[str, Any]]) -> dict[str, Told]:
    """What one fresh process told about starts one after the other."""
    places = {"COMPILOT_CACHE": "cache", "COMPILOT_CONFIG": "config", "CANARY": "canary"}
    env = {**os.environ, **{name: str(home / place) for name, place in places.items()}}
    command = [sys.executable, str(DATA / "try_regions.py"), json.dumps(wanted, default=str)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    found: dict[str, Told] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def told(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Every fault in one process; the whole bundle is started last, from the same cache."""
    home = tmp_path_factory.mktemp("faults")
    wanted: dict[str, dict[str, Any]] = {}
    for case, damage in DAMAGED.items():
        path = home / f"{case}.cpbundle"
        path.write_bytes(damage(bundle))
        wanted[case] = {"bundle": path}
    generate_key(home / "key")
    generate_key(home / "stranger")
    signed = reseal(bundle, home / "signed", lambda folder, manifest: manifest, home / "key")
    for engine in BY_ENGINE:
        name = f"file-of-{engine}-gone"
        wanted[name] = {"bundle": without(bundle, home / name, file_of(bundle, engine))}
    for case, (machine, _) in ELSEWHERE.items():
        wanted[case] = {"bundle": packed_elsewhere(bundle, home / case, machine)}
    evil = packed_elsewhere(bundle, home / "evil", {})
    shutil.copy(evil, home / "loose.cpbundle").chmod(0o666)
    wanted["evil-and-loose"] = {"bundle": home / "loose.cpbundle"}
    wanted["evil-and-unsigned"] = {"bundle": evil, "options": {"require_signature": True}}
    wanted["unsigned"] = {"bundle": bundle, "options": {"require_signature": True}}
    wanted["stranger"] = {"bundle": signed, "options": {"trusted_keys": [home / "stranger.pub"]}}
    wanted |= {f"{path} doubled": {"bundle": bundle, "change": f"{path} doubled"} for path in FROZEN}
    wanted["weights-outside"] = {"bundle": bundle, "change": "layers.4.up doubled"}
    wanted["other-structure"] = {"bundle": bundle, "change": "structure"}
    wanted["signed"] = {"bundle": signed, "options": {"trusted_keys": [home / "key.pub"], "require_signature": True}}
    wanted["whole"] = {"bundle": bundle}
    wanted["hostile"] = {"bundle": bundle, "change": "calls"}
    wanted["evil"] = {"bundle": evil}
    return starts(home, wanted)


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_anywhere_is_refused_by_the_bundles_name_and_eager_answers(told: dict[str, Told], case: str) -> None:
    one = told[case]
    assert (one["fast"], one["error"]) == (0, 0.0)
    assert len(one["warnings"]) == 1
    assert f"{case}.cpbundle is not a usable bundle: " in one["warnings"][0]


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("file-of-onnxruntime-gone", "in layers.2: model.onnx is missing"),
        ("file-of-aoti-gone", "in layers.3: "),
        ("file-of-openvino-gone", "in last: "),
        ("unsigned", "not signed"),
        ("stranger", "not trusted"),
        *((f"{path} doubled", "the weight values frozen into") for path in FROZEN),
        *((case, why) for case, (_, why) in ELSEWHERE.items()),
        ("other-structure", "the model's structure"),
    ],
)
def test_what_is_forged_or_for_another_model_is_not_used(told: dict[str, Told], case: str, why: str) -> None:
    one = told[case]
    assert one.get("refused") or (one["fast"], one["error"]) == (0, 0.0), one
    assert why in " ".join([*one["warnings"], one.get("why", "")]), one


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("case", ["whole", "signed"])
def test_the_bundle_as_it_was_packed_is_used_after_all_these(told: dict[str, Told], case: str) -> None:
    one = told[case]
    assert one["warnings"] == []
    assert one["error"] < 1e-5
    assert one["regions"] == {path: [1, {}] for path in ("layers.1", "layers.2", "layers.3", "last")}
    assert one["fast"] == 1


@pytest.mark.slow
@pytest.mark.compiles
def test_other_weights_outside_of_the_regions_are_the_models_own(told: dict[str, Told]) -> None:
    assert told["weights-outside"]["error"] < 1e-5  # whoever answers


@pytest.mark.slow
@pytest.mark.compiles
def test_calls_that_it_was_not_made_for_are_eagers(told: dict[str, Told]) -> None:
    """The whole contract of hostile calls is in tests/contracts; this is the way in through a bundle."""
    calls = told["hostile"]["hostile"]
    assert calls == {name: [True, 0] for name in calls}
    assert len(calls) == 8


@pytest.mark.slow
@pytest.mark.compiles
def test_foreign_native_code_in_a_region_does_not_run_unless_somebody_vouches_for_it(told: dict[str, Told]) -> None:
    assert "not signed" in " ".join([*told["evil-and-loose"]["warnings"], told["evil-and-loose"].get("why", "")])
    assert [name for name, one in told.items() if one["sang"]] == ["evil"]  # which its owner may start


@pytest.mark.slow
@pytest.mark.compiles
def test_none_of_these_starts_needs_a_compiler(told: dict[str, Told]) -> None:
    assert {name: one["heavy"] for name, one in told.items() if one["heavy"]} == {}
