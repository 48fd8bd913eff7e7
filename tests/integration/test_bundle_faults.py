"""Bundles that are damaged or dangerous, started by fresh processes: refused by name, nothing of them run.

Of what compilot must survive, these are the rows about truncation (1), flipped bits (2), names that lead out of a
bundle (4) and pickles (33). Bundles for something else: test_stale_bundles.py; signatures: test_bundle_trust.py.
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
from bundle_help import Told, command_line, in_two_ways, reseal, served_by_eager, try_starts

from compilot.artifacts.bundle import DIGEST, MANIFEST
from compilot.records import ArtifactFile, Manifest, encode

Packer = Callable[..., Path]
Starts = dict[str, Told]


# ---- rows 1 and 2 ----------------------------------------------------------------------------------------------------


def flipped(bundle: Path, name: str) -> bytes:
    """The bundle's bytes with one bit turned over in the middle of a member."""
    whole = bytearray(bundle.read_bytes())
    with zipfile.ZipFile(bundle) as archive:
        data = archive.read(name)
    whole[whole.index(data) + len(data) // 2] ^= 1
    return bytes(whole)


DAMAGED: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda bundle: b"",
    "cut in half": lambda bundle: bundle.read_bytes()[: bundle.stat().st_size // 2],
    "cut at the end": lambda bundle: bundle.read_bytes()[:-1],
    "artifact": lambda bundle: flipped(bundle, "artifacts/0/optimised.onnx"),
    "plan": lambda bundle: flipped(bundle, "plan.json"),
    "golden answer": lambda bundle: flipped(bundle, "golden/0-outputs.safetensors"),
    "manifest": lambda bundle: flipped(bundle, MANIFEST),
}


@pytest.fixture(scope="module")
def damaged(packed: Packer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Starts]:
    """What a process told about damaged copies of a bundle."""
    folder, bundles = tmp_path_factory.mktemp("damaged"), {}
    for case, damage in DAMAGED.items():
        bundles[case] = folder / f"{case.replace(' ', '-')}.cpbundle"
        bundles[case].write_bytes(damage(packed("onnxruntime")))
    return folder, try_starts(folder, in_two_ways(bundles))


@pytest.mark.parametrize("case", DAMAGED)
def test_rows_1_and_2_damage_is_refused_by_the_files_name(damaged: tuple[Path, Starts], case: str) -> None:
    folder, told = damaged
    name = f"{case.replace(' ', '-')}.cpbundle is not a usable bundle: "
    assert told[f"{case}, load"]["refused"] == "BundleError"
    assert name in told[f"{case}, load"]["why"]
    assert served_by_eager(told[f"{case}, compile"], name), told
    assert list(folder.glob("cache/bundles/*/plan.json")) == []  # nothing that a later start would take


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
def escapes(packed: Packer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Starts]:
    """What a process told about bundles whose members lead out of them."""
    folder, bundles = tmp_path_factory.mktemp("escapes"), {}
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


def test_row_33_a_pickle_from_anywhere_is_never_opened(
    packed: Packer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pickles")
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
        assert "is not a safetensors file" in told[name]["why"]
    assert served_by_eager(told["eager"], "is not a safetensors file"), told["eager"]

    for path in (plain, saved):
        ran = command_line("tune", f"{path}:model", cwd=folder)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == f"error: '{path}' is not a Python file; a target file ends in .py.\n"
    assert not canary.exists()
    pickle.loads(plain.read_bytes())
    assert canary.exists()  # whoever unpickles it runs it
