"""Who may be loaded: signatures, owners, and a canary that sings when foreign native code runs."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bundle_help import put_canary, reseal, serve, told, try_starts

import compilot
from compilot.artifacts.signing import generate_key
from compilot.errors import CompilotWarning, UntrustedBundle
from compilot.records import Manifest

Packer = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))


def unchanged(folder: Path, manifest: Manifest) -> Manifest:
    return manifest


@pytest.fixture
def signed(packed: Packer, tmp_path: Path) -> Path:
    generate_key(tmp_path / "key")
    return reseal(packed("onnxruntime"), tmp_path / "signed", unchanged, tmp_path / "key")


def test_a_signed_bundle_is_loaded_with_a_trusted_key_only(signed: Path, tmp_path: Path) -> None:
    with pytest.raises(UntrustedBundle, match="not trusted"):
        compilot.load(signed)
    signed.chmod(0o666)  # whoever may write to it: the signature vouches, and it is copied before it is checked
    fast = compilot.load(signed, trusted_keys=[tmp_path / "key.pub"], require_signature=True)
    assert "golden call" in fast.startup
    assert fast.stats().calls == 0
    generate_key(tmp_path / "stranger")
    with pytest.raises(UntrustedBundle, match="not trusted"):
        compilot.load(signed, trusted_keys=[tmp_path / "stranger.pub"])


def test_a_signed_folder_that_others_may_change_is_copied_first(packed: Packer, tmp_path: Path) -> None:
    generate_key(tmp_path / "key")
    reseal(packed("onnxruntime"), tmp_path / "folder", unchanged, tmp_path / "key")
    (tmp_path / "folder").chmod(0o777)
    compilot.load(tmp_path / "folder", trusted_keys=[tmp_path / "key.pub"])
    assert [p for p in (tmp_path / "cache/bundles").iterdir() if p.is_dir()]


def test_a_changed_bundle_with_the_old_signature_is_refused(signed: Path, tmp_path: Path) -> None:
    old = zipfile.ZipFile(signed).read("signature.json")
    forged = tmp_path / "forged.cpbundle"
    with zipfile.ZipFile(signed) as source, zipfile.ZipFile(forged, "w") as copy:
        for name in source.namelist():
            data = source.read(name).replace(b'"label": "Tiny"', b'"label": "Tony"')
            copy.writestr(zipfile.ZipInfo(name), old if name == "signature.json" else data)
    with pytest.raises(UntrustedBundle, match="changed after it was signed"):
        compilot.load(forged, trusted_keys=[tmp_path / "key.pub"])


def test_the_plan_in_a_bundle_is_read_by_the_same_rules(signed: Path, packed: Packer, tmp_path: Path) -> None:
    with pytest.raises(UntrustedBundle, match="not trusted"):
        compilot.apply_process(signed)
    assert compilot.apply_process(signed, trusted_keys=[tmp_path / "key.pub"], require_signature=True) == {}
    assert compilot.apply_process(packed("onnxruntime")) == {}
    with pytest.raises(UntrustedBundle, match="not signed"):
        compilot.apply_process(packed("onnxruntime"), require_signature=True)


def test_unsigned_bundles_are_refused_where_a_signature_is_required(packed: Packer) -> None:
    with pytest.raises(UntrustedBundle, match="not signed"):
        compilot.load(packed("onnxruntime"), require_signature=True)


def test_an_unsigned_bundle_that_others_may_write_to_serves_eager(packed: Packer, tmp_path: Path) -> None:
    import bundling

    loose = tmp_path / "loose.cpbundle"
    shutil.copy(packed("onnxruntime"), loose)
    loose.chmod(0o666)
    model, asked = bundling.model(), {"x": bundling.batch(1), "extra": {"bias": torch.ones(32)}}
    with pytest.warns(CompilotWarning, match="not signed"):
        fast = compilot.compile(model, loose)
    with torch.no_grad():
        assert torch.equal(fast(**asked)["logits"], model(**asked)["logits"])
    assert fast.stats().fast == 0


@pytest.mark.compiles
def test_foreign_native_code_does_not_run_unless_somebody_trusted_vouches(packed: Packer, tmp_path: Path) -> None:
    def replace_code(folder: Path, manifest: Manifest) -> Manifest:
        put_canary(folder)
        return manifest

    evil = reseal(packed("aoti"), tmp_path / "evil", replace_code)
    evil.chmod(0o666)
    generate_key(tmp_path / "key")
    forged = reseal(packed("aoti"), tmp_path / "forged", replace_code, tmp_path / "key")
    canary = Path(os.environ["CANARY"])
    answers = [told(process) for process in [serve(evil), serve(forged)]]
    assert [answer["refused"] for answer in answers] == ["UntrustedBundle"] * 2
    assert not canary.exists()
    evil.chmod(0o644)  # now the owner vouches for it
    unsigned = try_starts(tmp_path, {"unsigned": {"plan": evil, "how": "signed only"}})["unsigned"]
    assert unsigned["refused"] == "UntrustedBundle"
    assert "it is not signed, and a signature is required" in unsigned["why"]
    assert not canary.exists()  # and without that wish it would have sung:
    assert "refused" in told(serve(evil))
    assert canary.exists()
