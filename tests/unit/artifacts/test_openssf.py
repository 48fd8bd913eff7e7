"""OpenSSF signatures beside bundles, made and checked with the real package where it is installed."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from compilot.artifacts import openssf
from compilot.errors import EnvironmentProblem, KeyProblem, UntrustedBundle

installed = pytest.mark.skipif(
    importlib.util.find_spec("model_signing") is None,
    reason="model-signing is not installed; pip install model-signing pyOpenSSL",
)


def write_keys(private: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | None = None) -> Path:
    """A key pair as openssl leaves it; the public half has .pub added."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    private.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    private.chmod(0o600)
    public = private.with_name(private.name + ".pub")
    public.write_bytes(key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo))
    return private


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "ci")


@pytest.fixture
def public(key: Path) -> Path:
    return key.with_name("ci.pub")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Any bytes: the check must not understand them."""
    path = tmp_path / "net.cpbundle"
    path.write_bytes(random.Random(0).randbytes(10_000))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "net-folder"
    (path / "artifacts").mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    (path / "artifacts/model.bin").write_bytes(b"weights")
    return path


@installed
def test_a_signed_bundle_is_vouched_for_also_under_another_name(bundle: Path, key: Path, public: Path) -> None:
    made = openssf.sign(bundle, key)
    assert made == bundle.with_name("net.cpbundle.sig")
    assert openssf.check(bundle, public).signature == made
    renamed = bundle.rename(bundle.with_name("other.cpbundle"))
    link = bundle.with_name("link.cpbundle")
    link.symlink_to(renamed)
    assert openssf.check(link, public, made).key_sha256 == openssf.check(renamed, public, made).key_sha256


@installed
def test_the_key_is_named_as_in_the_signature_itself(bundle: Path, key: Path, public: Path) -> None:
    written = json.loads(openssf.sign(bundle, key).read_text())
    assert openssf.check(bundle, public).key_sha256 == written["verificationMaterial"]["publicKey"]["hint"]


@installed
def test_a_signature_that_does_not_name_its_key_is_checked_and_leaves_stdout_alone(
    bundle: Path, key: Path, public: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = openssf.sign(bundle, key)
    written = json.loads(made.read_text())
    del written["verificationMaterial"]["publicKey"]["hint"]
    made.write_text(json.dumps(written))
    openssf.check(bundle, public)
    assert capsys.readouterr().out == ""


@installed
def test_another_key_is_refused(bundle: Path, key: Path, tmp_path: Path) -> None:
    openssf.sign(bundle, key)
    write_keys(tmp_path / "other")
    with pytest.raises(UntrustedBundle, match=r"made with another key, or was changed; get both again"):
        openssf.check(bundle, tmp_path / "other.pub")


@installed
def test_a_signature_that_only_claims_to_be_by_the_key_is_refused(bundle: Path, public: Path, tmp_path: Path) -> None:
    forged = openssf.sign(bundle, write_keys(tmp_path / "other"))
    written = json.loads(forged.read_text())
    written["verificationMaterial"]["publicKey"]["hint"] = openssf._fingerprint(public)
    forged.write_text(json.dumps(written))
    with pytest.raises(UntrustedBundle, match="made with another key, or was changed"):
        openssf.check(bundle, public)


@installed
@pytest.mark.parametrize("where", [0, 5_000, 9_999])
def test_a_changed_byte_is_refused(bundle: Path, key: Path, public: Path, where: int) -> None:
    openssf.sign(bundle, key)
    data = bytearray(bundle.read_bytes())
    data[where] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(UntrustedBundle, match=r"net\.cpbundle: the bundle is not the one that was signed; get both"):
        openssf.check(bundle, public)


@installed
@pytest.mark.parametrize(
    "text", ["", "no json", "{}", "[]", "null", '{"verificationMaterial": {}}', "[" * 100_000], ids=range(7)
)
def test_a_damaged_signature_is_refused(bundle: Path, public: Path, text: str) -> None:
    openssf.signature_path(bundle).write_text(text)
    with pytest.raises(UntrustedBundle, match=r"does not match .*: model-signing cannot check it"):
        openssf.check(bundle, public)


@installed
def test_a_changed_statement_is_refused(bundle: Path, key: Path, public: Path) -> None:
    made = openssf.sign(bundle, key)
    written = json.loads(made.read_text())
    payload = written["dsseEnvelope"]["payload"]
    written["dsseEnvelope"]["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
    made.write_text(json.dumps(written))
    with pytest.raises(UntrustedBundle, match="made with another key, or was changed"):
        openssf.check(bundle, public)


@installed
@pytest.mark.parametrize("change", ["changed", "added", "missing"])
def test_a_folder_is_checked_file_by_file(folder: Path, key: Path, public: Path, change: str) -> None:
    openssf.sign(folder, key)
    openssf.check(folder, public)
    file = folder / ("artifacts/new.so" if change == "added" else "artifacts/model.bin")
    file.unlink() if change == "missing" else file.write_bytes(b"WEIGHTS")
    with pytest.raises(UntrustedBundle, match="the bundle is not the one that was signed"):
        openssf.check(folder, public)


@installed
@pytest.mark.parametrize("left_out", ["manifest.json", "artifacts"])
def test_a_signature_may_leave_out_what_the_manifest_has_but_not_the_manifest(
    folder: Path, key: Path, public: Path, left_out: str
) -> None:
    import model_signing

    hashing = model_signing.hashing.Config().set_ignored_paths(paths=[left_out])
    signer = model_signing.signing.Config().use_elliptic_key_signer(private_key=key).set_hashing_config(hashing)
    signer.sign(folder, openssf.signature_path(folder))
    if left_out == "artifacts":
        openssf.check(folder, public)
    else:
        with pytest.raises(UntrustedBundle, match=r"it leaves out manifest\.json"):
            openssf.check(folder, public)


@installed
def test_a_place_that_cannot_be_written_says_what_is_missing(bundle: Path, key: Path) -> None:
    openssf.signature_path(bundle).mkdir()
    with pytest.raises(EnvironmentProblem, match=r"has no OpenSSF signature: .* could not be made .*; fix that"):
        openssf.sign(bundle, key)


def test_a_missing_signature_says_how_to_get_one(bundle: Path, public: Path) -> None:
    with pytest.raises(UntrustedBundle, match=r"no OpenSSF signature at .*net\.cpbundle\.sig .*openssf_signature"):
        openssf.check(bundle, public)


def test_without_the_package_the_next_step_is_named(
    bundle: Path, key: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    openssf.signature_path(bundle).write_text("{}")
    told = r"^model-signing is not installed; pip install model-signing pyOpenSSL\.$"
    with pytest.raises(EnvironmentProblem, match=told):
        openssf.check(bundle, public)
    with pytest.raises(EnvironmentProblem, match=told):
        openssf.ready_to_sign(key)


def test_keys_of_other_kinds_are_refused_with_the_way_to_make_one(bundle: Path, tmp_path: Path) -> None:
    for other in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256K1())):
        key = write_keys(tmp_path / "other", other)
        with pytest.raises(KeyProblem, match=r"not a P-256, P-384 or P-521 key.*openssl ecparam"):
            openssf.ready_to_sign(key)
        with pytest.raises(KeyProblem, match=r"not a P-256, P-384 or P-521 key.*openssl ec "):
            openssf.check(bundle, tmp_path / "other.pub")


def test_key_files_that_do_not_do_are_refused(bundle: Path, key: Path, public: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyProblem, match="is a private key"):
        openssf.check(bundle, key)
    with pytest.raises(KeyProblem, match="cannot read key"):
        openssf.check(bundle, tmp_path / "none.pub")
    with pytest.raises(KeyProblem, match="not a key that can be read"):
        openssf.check(bundle, bundle)
    public.chmod(0o666)
    with pytest.raises(KeyProblem, match="cannot say whom to trust"):
        openssf.check(bundle, public)
    key.chmod(0o644)
    with pytest.raises(KeyProblem, match="others may read the private key"):
        openssf.ready_to_sign(key)


def test_the_signature_lies_beside_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert openssf.signature_path(Path("a/net.cpbundle")) == Path("a/net.cpbundle.sig")
    assert openssf.signature_path(Path("a/net/")) == Path("a/net.sig")
    assert openssf.signature_path(Path()) == tmp_path.with_name(tmp_path.name + ".sig")


def test_neither_the_command_line_nor_this_module_imports_the_package_at_once() -> None:
    code = "import sys, compilot.cli.main, compilot.artifacts.openssf; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "compilot.artifacts.openssf" in loaded
    assert not {"model_signing", "sigstore", "torch"} & set(loaded)
