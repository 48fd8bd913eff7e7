"""`compilot pack --openssf-key` and `compilot verify --openssf-key`: a second signature, beside the usual trust."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import Result

from compilot import packing
from compilot.artifacts.planfile import save_plan
from compilot.packing.writing import publish, seal
from compilot.records import BUNDLE_SCHEMA, Manifest, Weights
from compilot.runtime import staleness

Command = Callable[..., Result]
installed = pytest.mark.skipif(
    importlib.util.find_spec("model_signing") is None,
    reason="model-signing is not installed; pip install model-signing pyOpenSSL",
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    made, private = ec.generate_private_key(ec.SECP256R1()), tmp_path / "ci.pem"
    private.write_bytes(made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    private.chmod(0o600)
    public = made.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "ci.pub").write_bytes(public)
    return private


@pytest.fixture
def bundle(small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the packer, a fake one, puts a small real bundle; every machine is the right one."""

    def pack(runs: list[Path], out: Path, options: packing.Options, observer: object) -> packing.Packed:
        staged = tmp_path / "staged"
        staged.mkdir()
        save_plan(small_run.plan, staged / "plan.json")
        bare = Manifest(
            schema=BUNDLE_SCHEMA,
            compilot="0.1",
            created="2026-01-01T00:00:00+00:00",
            label="Net",
            engine="fake",
            fingerprint=small_run.plan.fingerprint,
            weights=Weights.BAKED,
        )
        manifest = seal(staged, bare, options.key)
        publish(staged, out, as_folder=options.folder)
        return packing.Packed(out, manifest, 1000)

    monkeypatch.setattr(packing, "pack", pack)
    monkeypatch.setattr(staleness, "machine_differences", lambda manifest: [])
    return tmp_path / "net.cpbundle"


def verified(compilot: Command, bundle: Path, *more: str, code: int) -> dict[str, Any]:
    shown = compilot("verify", str(bundle), "--json", *more)
    assert shown.exit_code == code, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@installed
@pytest.mark.parametrize("form", [[], ["--folder"]], ids=["file", "folder"])
def test_what_pack_signs_verify_confirms(compilot: Command, bundle: Path, key: Path, form: list[str]) -> None:
    packed = compilot("pack", "run", "-o", str(bundle), "--openssf-key", str(key), "-q", "--json", *form)
    assert json.loads(packed.stdout)["openssf_signature"] == f"{bundle}.sig"
    public = str(key.with_suffix(".pub"))
    found = verified(compilot, bundle, "--openssf-key", public, code=0)
    assert found["openssf"]["ok"]
    assert found["openssf"]["signature"] == f"{bundle}.sig"
    assert found["trusted_by"].startswith("not signed")  # the usual rule was asked as well
    shown = compilot("verify", str(bundle), "--openssf-key", public).stdout
    assert f"  openssf  signed with key {found['openssf']['key_sha256'][:16]} ({bundle}.sig)\n" in shown
    moved = Path(f"{bundle}.sig").rename(bundle.with_name("elsewhere"))
    assert verified(compilot, bundle, "--openssf-key", public, "--openssf-signature", str(moved), code=0)["fits"]


@installed
def test_a_bundle_that_is_not_trusted_stays_so_with_a_good_openssf_signature(
    compilot: Command, bundle: Path, key: Path
) -> None:
    assert "OpenSSF signature: " in compilot("pack", "r", "-o", str(bundle), "--openssf-key", str(key), "-q").stdout
    asked = ["--require-signature", "--openssf-key", str(key.with_suffix(".pub"))]
    found = verified(compilot, bundle, *asked, code=1)
    assert found["openssf"]["ok"]
    assert "a signature is required" in found["refused"]
    shown = compilot("verify", str(bundle), *asked).stdout
    assert shown.startswith("refused: ")
    assert "\n  openssf  signed with key" in shown


@installed
def test_a_changed_bundle_is_refused_before_it_is_read(
    compilot: Command, bundle: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilot("pack", "run", "-o", str(bundle), "--openssf-key", str(key), "-q")
    bundle.write_bytes(bundle.read_bytes() + b"\0")
    monkeypatch.setattr("compilot.artifacts.bundle.open_bundle", lambda *_: pytest.fail("it was opened"))
    found = verified(compilot, bundle, "--openssf-key", str(key.with_suffix(".pub")), code=1)
    assert found["openssf"] == {"ok": False}
    assert "is not the one that was signed" in found["refused"]


def test_a_missing_signature_is_a_refusal(compilot: Command, bundle: Path, key: Path) -> None:
    compilot("pack", "run", "-o", str(bundle), "-q")
    assert verified(compilot, bundle, code=0)["openssf"] is None
    found = verified(compilot, bundle, "--openssf-key", str(key.with_suffix(".pub")), code=1)
    assert found["openssf"] == {"ok": False}
    assert "has no OpenSSF signature at" in found["refused"]


def test_a_missing_package_stops_pack_before_its_work(
    compilot: Command, bundle: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    refused = compilot("pack", "run", "-o", str(bundle), "--openssf-key", str(key), "-q")
    assert refused.exit_code == 2
    assert refused.stderr == "error: model-signing is not installed; pip install model-signing pyOpenSSL.\n"
    assert not bundle.exists()
    compilot("pack", "run", "-o", str(bundle), "-q")
    Path(f"{bundle}.sig").write_text("{}")
    refused = compilot("verify", str(bundle), "--openssf-key", str(key.with_suffix(".pub")))
    assert refused.exit_code == 2
    assert refused.stderr == "error: model-signing is not installed; pip install model-signing pyOpenSSL.\n"


def test_a_signature_without_a_key_is_a_mistake(compilot: Command, bundle: Path) -> None:
    compilot("pack", "run", "-o", str(bundle), "-q")
    refused = compilot("verify", str(bundle), "--openssf-signature", f"{bundle}.sig")
    assert refused.exit_code == 2
    assert "an OpenSSF signature needs the public key" in refused.stderr
