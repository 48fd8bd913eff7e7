"""Bundles that are not for this process, started by fresh processes: refused by name, nothing of them run.

Of what compilot must survive, these are the rows about names that lead out of a bundle (4), other versions (7), other
CPUs (8), another model (9) and pickles (33). Damage, signatures and owners: test_bundles.py, test_bundle_trust.py.
"""

from __future__ import annotations

import hashlib
import pickle
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from bundle_help import DATA, Told, command_line, put_canary, reseal, try_starts, with_machine

from compilot.artifacts.bundle import DIGEST, MANIFEST
from compilot.records import ArtifactFile, Manifest, encode

Packer = Callable[..., Path]
Starts = dict[str, Told]
EXACT = 0.0  # eager's own answer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder for each set of starts: its cache, its canary, its bundles."""
    return lambda name: tmp_path_factory.mktemp(name)


def in_two_ways(bundles: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Starts without a model, which must raise, and with one, where eager must answer."""
    return {
        f"{name}, {how}": {"plan": path, "how": how} for name, path in bundles.items() for how in ("load", "compile")
    }


def served_by_eager(told: Told, why: str) -> bool:
    """Eager's own answer, and one warning with the reason."""
    return (
        told.get("error") == EXACT and told["fast"] == 0 and len(told["warnings"]) == 1 and why in told["warnings"][0]
    )


# ---- row 4 -----------------------------------------------------------------------------------------------------------


def smuggle(bundle: Path, out: Path, *added: tuple[zipfile.ZipInfo, bytes]) -> Path:
    """The bundle with more members; its manifest names them and their digests are right."""
    with zipfile.ZipFile(bundle) as source:
        inside = {name: source.read(name) for name in source.namelist()}
    manifest = msgspec.json.decode(inside[MANIFEST], type=Manifest)
    files = {file.name: file for file in manifest.files}
    for info, data in added:
        digest = hashlib.sha256(data).hexdigest()
        files[info.filename] = ArtifactFile(name=info.filename, sha256=digest, size_bytes=len(data))
    inside[MANIFEST] = encode(msgspec.structs.replace(manifest, files=tuple(files.values())))
    inside[DIGEST] = hashlib.sha256(inside[MANIFEST]).hexdigest().encode()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own about names that are there twice
        for name, data in inside.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        for info, data in added:
            archive.writestr(info, data)
    return out


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16  # as `zip --symlinks` writes it
    return info


LEADING_OUT = {
    "one up": ("../escaped", "may lead out of the bundle"),
    "several up": ("artifacts/0/../../../escaped", "may lead out of the bundle"),
    "absolute": ("/{home}/escaped", "may lead out of the bundle"),
    "backslashes": ("..\\escaped", "may lead out of the bundle"),
    "through a link": ("artifacts/0/way/escaped", "is a link"),
    "there twice": ("plan.json", "is there twice"),
}


@pytest.fixture(scope="module")
def escapes(packed: Packer, home: Callable[[str], Path]) -> tuple[Path, Starts]:
    """What a process told about bundles whose members lead out of them."""
    folder, bundles = home("escapes"), {}
    for case, (name, _) in LEADING_OUT.items():
        way = [(link("artifacts/0/way"), str(folder).encode())] if "way" in name else []
        info = zipfile.ZipInfo(name.replace("/{home}", str(folder)))
        out = folder / f"{case.replace(' ', '-')}.cpbundle"
        bundles[case] = smuggle(packed("onnxruntime"), out, *way, (info, b"{}"))
    return folder, try_starts(folder, in_two_ways(bundles))


@pytest.mark.parametrize("case", LEADING_OUT)
def test_row_4_a_member_that_leads_out_refuses_the_whole_bundle(escapes: tuple[Path, Starts], case: str) -> None:
    folder, told = escapes
    name = f"{case.replace(' ', '-')}.cpbundle is not a usable bundle: member "
    refused = told[f"{case}, load"]
    assert refused["refused"] == "BundleError"
    assert name in refused["why"]
    assert LEADING_OUT[case][1] in refused["why"]
    assert served_by_eager(told[f"{case}, compile"], name), told
    assert sorted(path.suffix for path in folder.rglob("*")) == [".cpbundle"] * len(LEADING_OUT)  # nothing unpacked


def test_row_4_verify_refuses_it_too(escapes: tuple[Path, Starts]) -> None:
    folder, _ = escapes
    ran = command_line("verify", folder / "one-up.cpbundle", cwd=folder)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.startswith("refused: ")
    assert "'../escaped' has a name that may lead out of the bundle" in ran.stdout


# ---- rows 7 and 8 ----------------------------------------------------------------------------------------------------

NOT_HERE = "avx10_9"  # an instruction that no CPU has yet
ELSEWHERE = {
    "torch": ("aoti", {"torch": "2.12.1"}, "torch: the plan was made with 2.12.1, this process has 2."),
    "Python": ("aoti", {"python": "3.10.4"}, "Python: the plan was made with 3.10, this process has 3."),
    "ABI": ("aoti", {"platform": "Linux-riscv64"}, "platform: the plan was made with Linux-riscv64"),
    "CPU": ("aoti", {"cpu_isa": (NOT_HERE,)}, f"made with {NOT_HERE}, which this machine does not have"),
    "engine": ("onnxruntime", {"engines": {"onnxruntime": "1.2.3"}}, "onnxruntime: the plan was made with 1.2.3"),
    "vectors": ("onnxruntime", {"cpu_isa": ("amx_fp16",)}, "made with amx_fp16, which this machine"),
    "layout": ("onnxruntime", {"cpu_isa": ()}, "laid the weights out for a CPU without"),
    "compiler": ("onnxruntime", {"compiler": "g++ 4.8.5"}, "C++ compiler: the plan was made with g++ 4.8.5"),
}


def packed_elsewhere(machine: dict[str, Any]) -> Callable[[Path, Manifest], Manifest]:
    """The bundle as another machine would have packed it; native code gets a canary."""

    def change(folder: Path, manifest: Manifest) -> Manifest:
        if manifest.engine == "aoti":
            put_canary(folder)
        if "compiler" in machine:  # it matters to bundles that hold compiled files and compile more
            entries = tuple(msgspec.structs.replace(entry, needs_compiler=True) for entry in manifest.entries)
            manifest = msgspec.structs.replace(manifest, entries=entries)
        for field, value in machine.items():
            manifest = with_machine(manifest, field, value)
        return manifest

    return change


@pytest.fixture(scope="module")
def elsewhere(packed: Packer, home: Callable[[str], Path]) -> Starts:
    """What a process told about bundles that were packed elsewhere, and at last about one that was packed here."""
    folder = home("elsewhere")
    bundles = {
        case: reseal(packed(engine), folder / case, packed_elsewhere(machine))
        for case, (engine, machine, _) in ELSEWHERE.items()
    }
    starts = in_two_ways(bundles)
    starts |= {f"{case}, strict": {"plan": path, "how": "strict"} for case, path in bundles.items()}
    own = reseal(packed("aoti"), folder / "own", packed_elsewhere({}))
    return try_starts(folder, {**starts, "own": {"plan": own, "how": "load"}})


@pytest.mark.compiles
@pytest.mark.parametrize("case", ELSEWHERE)
def test_rows_7_and_8_what_was_packed_elsewhere_is_stale_and_not_loaded(elsewhere: Starts, case: str) -> None:
    told, why = elsewhere, ELSEWHERE[case][2]
    for how in ("load", "strict"):
        refused = told[f"{case}, {how}"]
        assert refused["refused"] == "StaleBundle", refused
        assert f"{case}.cpbundle was packed for something else: " in refused["why"]
        assert any(why in difference for difference in refused["differences"]), refused
    served = told[f"{case}, compile"]
    assert served_by_eager(served, why), served
    assert served["warnings"][0].startswith("StalePlanWarning: ")
    assert "Eager answers" in served["warnings"][0]
    assert not any(one["sang"] for name, one in told.items() if name != "own")
    assert told["own"]["sang"]  # the same code in a bundle that fits: it would have run


# ---- row 9 -----------------------------------------------------------------------------------------------------------

OTHER_MODELS = {
    "code": ("the source code of the model's classes changed", None),
    "shapes": (
        "the model's parameters (names, shapes or dtypes) changed",
        "def model():\n    made = bundling.model()\n    made.outer = torch.nn.Linear(32, 8)\n    return made\n",
    ),
    "values": (
        "weights are not those that were baked into the files",
        "def model():\n    torch.manual_seed(8)\n    return bundling.Tiny().eval()\n",
    ),
}


@pytest.fixture(scope="module")
def other_models(packed: Packer, home: Callable[[str], Path]) -> Starts:
    """What a process told about a bundle and models that are not quite the one it was packed for."""
    folder, starts = home("models"), {}
    for case, (_, code) in OTHER_MODELS.items():
        changed = (DATA / "bundling.py").read_text().replace('hidden + extra["bias"]', 'hidden - extra["bias"]')
        factory = folder / f"{case}.py"
        factory.write_text(changed if code is None else f"import bundling\nimport torch\n\n{code}")
        for how in ("strict", "compile"):
            starts[f"{case}, {how}"] = {"plan": packed("onnxruntime"), "how": how, "model": factory}
    return try_starts(folder, {**starts, "same": {"plan": packed("onnxruntime"), "how": "strict"}})


@pytest.mark.parametrize("case", OTHER_MODELS)
def test_row_9_another_model_is_stale_with_what_changed(other_models: Starts, case: str) -> None:
    why = OTHER_MODELS[case][0]
    refused, served = other_models[f"{case}, strict"], other_models[f"{case}, compile"]
    assert refused["refused"] == "StaleBundle", refused
    assert any(why in difference for difference in refused["differences"]), refused
    assert why in refused["why"]
    assert served_by_eager(served, why), served  # its own answer, not the packed model's
    assert served["warnings"][0].startswith("StalePlanWarning: ")
    assert other_models["same"]["fast"] == 2  # the golden call and this one


# ---- row 33 ----------------------------------------------------------------------------------------------------------


class Payload:
    """Leaves the canary's file behind when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def swapped(name: str, data: bytes) -> Callable[[Path, Manifest], Manifest]:
    """A bundle's file with other bytes in it."""

    def change(folder: Path, manifest: Manifest) -> Manifest:
        (folder / name).write_bytes(data)
        return manifest

    return change


def test_row_33_a_pickle_from_anywhere_is_never_opened(packed: Packer, home: Callable[[str], Path]) -> None:
    folder = home("pickles")
    canary = folder / "canary"
    plain, saved = folder / "model.pkl", folder / "model.pt"
    plain.write_bytes(pickle.dumps({"weights": Payload(canary)}))
    torch.save({"weights": Payload(canary)}, saved)
    renamed = folder / "renamed.cpbundle"
    renamed.write_bytes(plain.read_bytes())
    carried, baked = packed(None, carry_weights=True), packed("onnxruntime")
    weights = reseal(carried, folder / "weights", swapped("weights.safetensors", plain.read_bytes()))
    saved_weights = reseal(carried, folder / "saved-weights", swapped("weights.safetensors", saved.read_bytes()))
    golden = reseal(baked, folder / "golden", swapped("golden/0-inputs.safetensors", plain.read_bytes()))

    given = {"plain": plain, "saved": saved, "renamed": renamed, "golden": golden}
    starts = {f"{name}, load": {"plan": path, "how": "load"} for name, path in given.items()}
    given |= {"weights": weights, "saved weights": saved_weights}
    starts |= {f"{name}, strict": {"plan": path, "how": "strict"} for name, path in given.items()}
    starts["eager"] = {"plan": weights, "how": "compile"}
    told = try_starts(folder, starts)

    assert all(one["untouched"] and not one["sang"] for one in told.values()), told
    kinds = {name: one["refused"] for name, one in told.items() if name != "eager"}
    assert kinds == {name: "PlanError" if name == "plain, strict" else "BundleError" for name in kinds}
    for name in ("weights, strict", "saved weights, strict", "golden, load", "golden, strict"):
        assert "is no safetensors file" in told[name]["why"]
    assert served_by_eager(told["eager"], "is no safetensors file"), told["eager"]

    for path in (plain, saved):
        ran = command_line("tune", f"{path}:model", cwd=folder)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == f"error: '{path}' is not a Python file; a target file ends in .py.\n"
    assert not canary.exists()
    pickle.loads(plain.read_bytes())
    assert canary.exists()  # whoever unpickles it runs it
