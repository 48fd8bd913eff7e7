"""Bundles of plans with regions: damaged, forged or for another model, started with a model by a fresh process.

The same rows of faults as test_bundle_faults.py and test_bundle_trust.py have for whole models. Such bundles need the
model's object, so `compilot.compile` is the way in: eager answers, one warning names the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_help import Told, reseal
from regional_runs import DATA, regional, run_of

from compilot.artifacts.bundle import MANIFEST
from compilot.artifacts.signing import generate_key
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Manifest, Settings

PARTS = regional(("layers.[1-2]", Settings(engine="onnxruntime")), ("last", Settings(engine="onnxruntime")))
ONE = "artifacts/0/regions/0/1/optimised.onnx"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("regional")
    return pack([run_of(home / "run", PARTS)], home / "parts.cpbundle", PackOptions(twin=False), Observer()).path


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
    "one-region": lambda bundle: flipped(bundle, ONE),
    "list-of-regions": lambda bundle: flipped(bundle, "artifacts/0/regions.json"),
    "plan": lambda bundle: flipped(bundle, "plan.json"),
    "golden-answer": lambda bundle: flipped(bundle, "golden/0-outputs.safetensors"),
    "manifest": lambda bundle: flipped(bundle, MANIFEST),
}


def starts(home: Path, wanted: dict[str, dict[str, Any]]) -> dict[str, Told]:
    """What one fresh process told about starts one after the other."""
    env = {**os.environ, "COMPILOT_CACHE": str(home / "cache"), "COMPILOT_CONFIG": str(home / "config")}
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
    wanted["file-gone"] = {"bundle": without(bundle, home / "file-gone", ONE)}
    wanted["unsigned"] = {"bundle": bundle, "options": {"require_signature": True}}
    wanted["stranger"] = {"bundle": signed, "options": {"trusted_keys": [home / "stranger.pub"]}}
    wanted["other-weights"] = {"bundle": bundle, "change": "weights"}
    wanted["weights-outside"] = {"bundle": bundle, "change": "weights outside"}
    wanted["other-structure"] = {"bundle": bundle, "change": "structure"}
    wanted["signed"] = {"bundle": signed, "options": {"trusted_keys": [home / "key.pub"], "require_signature": True}}
    wanted["whole"] = {"bundle": bundle}
    wanted["hostile"] = {"bundle": bundle, "change": "calls"}
    return starts(home, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_anywhere_is_refused_by_the_bundles_name_and_eager_answers(told: dict[str, Told], case: str) -> None:
    one = told[case]
    assert (one["fast"], one["error"]) == (0, 0.0)
    assert len(one["warnings"]) == 1
    assert f"{case}.cpbundle is not a usable bundle: " in one["warnings"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("file-gone", "in layers.2: model.onnx is missing"),
        ("unsigned", "not signed"),
        ("stranger", "not trusted"),
        ("other-weights", "the weight values frozen into"),
        ("other-structure", "the model's structure"),
    ],
)
def test_what_is_forged_or_for_another_model_is_not_used(told: dict[str, Told], case: str, why: str) -> None:
    one = told[case]
    assert one.get("refused") or (one["fast"], one["error"]) == (0, 0.0), one
    assert why in " ".join([*one["warnings"], one.get("why", "")]), one


@pytest.mark.slow
@pytest.mark.parametrize("case", ["whole", "signed"])
def test_the_bundle_as_it_was_packed_is_used_after_all_these(told: dict[str, Told], case: str) -> None:
    one = told[case]
    assert one["warnings"] == []
    assert one["error"] < 1e-5
    assert one["regions"] == {path: [1, {}] for path in ("layers.1", "layers.2", "last")}
    assert one["fast"] == 1


@pytest.mark.slow
def test_other_weights_outside_of_the_regions_are_the_models_own(told: dict[str, Told]) -> None:
    assert told["weights-outside"]["error"] < 1e-5  # whoever answers


@pytest.mark.slow
def test_calls_that_it_was_not_made_for_are_eagers(told: dict[str, Told]) -> None:
    """The whole contract of hostile calls is in tests/contracts; this is the way in through a bundle."""
    calls = told["hostile"]["hostile"]
    assert calls == {name: [True, 0] for name in calls}
    assert len(calls) == 8


@pytest.mark.slow
def test_none_of_these_starts_needs_a_compiler(told: dict[str, Told]) -> None:
    assert {name: one["heavy"] for name, one in told.items() if one["heavy"]} == {}
