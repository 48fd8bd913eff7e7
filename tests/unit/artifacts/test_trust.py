"""One default: unsigned only where nobody else can write, signed only with a trusted key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compilot.artifacts.signing import PublicKey, generate_key, sign
from compilot.artifacts.trust import decide_trust, trusted_keys, who_can_change
from compilot.errors import KeyProblem

MANIFEST = b'{"schema": 1}'
NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "model.cpbundle"
    path.write_bytes(b"bundle")
    path.chmod(0o644)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "model.so").write_bytes(b"code")
    for entry in (path, path / "deep", path / "deep" / "model.so"):
        entry.chmod(0o755)
    return path


@pytest.fixture
def key(tmp_path: Path) -> PublicKey:
    return generate_key(tmp_path / "release")


def test_an_unsigned_bundle_of_ones_own_is_loaded(bundle: Path, folder: Path) -> None:
    assert decide_trust(bundle, MANIFEST, None).ok
    assert decide_trust(folder, MANIFEST, None).ok


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_an_unsigned_bundle_that_others_can_write_to_is_not(bundle: Path, mode: int) -> None:
    bundle.chmod(mode)
    decision = decide_trust(bundle, MANIFEST, None)
    assert not decision.ok
    assert f"others may write to it (mode {mode:04o})" in decision.why
    assert "have it signed" in decision.why


def test_one_loose_file_deep_in_a_folder_is_enough(folder: Path) -> None:
    (folder / "deep" / "model.so").chmod(0o777)
    assert "model.so" in decide_trust(folder, MANIFEST, None).why
    assert not decide_trust(folder, MANIFEST, None).ok


def test_a_link_in_a_folder_is_not_followed(folder: Path) -> None:
    (folder / "deep" / "more").symlink_to("/etc")
    assert "it is a link" in decide_trust(folder, MANIFEST, None).why


def test_a_folder_above_that_everybody_may_write_to_is_enough(bundle: Path) -> None:
    bundle.parent.chmod(0o777)
    assert "everybody may write to" in decide_trust(bundle, MANIFEST, None).why
    bundle.parent.chmod(0o1777)  # sticky, as /tmp: nobody can rename what is not theirs
    assert decide_trust(bundle, MANIFEST, None).ok


@as_root
@pytest.mark.parametrize("far", [False, True])
def test_a_folder_above_that_a_group_may_write_to_is_enough(tmp_path: Path, far: bool) -> None:
    (tmp_path / "above" / "near").mkdir(parents=True)
    path = tmp_path / "above" / "near" / "model.cpbundle"
    path.write_bytes(b"bundle")
    shared = path.parent.parent if far else path.parent
    os.chown(shared, -1, NOBODY)
    shared.chmod(0o775)
    decision = decide_trust(path, MANIFEST, None)
    assert not decision.ok
    assert f"may write to {shared}, above it; run chmod g-w" in decision.why
    shared.chmod(0o1775)
    assert decide_trust(path, MANIFEST, None).ok


def test_a_missing_bundle_is_not_trusted(tmp_path: Path) -> None:
    assert "No such file" in decide_trust(tmp_path / "missing", MANIFEST, None).why


@as_root
def test_an_unsigned_bundle_of_somebody_else_is_not_loaded(bundle: Path) -> None:
    os.chown(bundle, NOBODY, NOBODY)
    decision = decide_trust(bundle, MANIFEST, None)
    assert not decision.ok
    assert "belongs to user 65534" in decision.why


def test_a_required_signature_refuses_ones_own_unsigned_bundle(bundle: Path) -> None:
    decision = decide_trust(bundle, MANIFEST, None, require_signature=True)
    assert not decision.ok
    assert "signature is required" in decision.why


def test_a_signed_bundle_is_loaded_from_anywhere_with_a_trusted_key_only(
    bundle: Path, key: PublicKey, tmp_path: Path
) -> None:
    signature = sign(MANIFEST, tmp_path / "release")
    bundle.chmod(0o666)
    decision = decide_trust(bundle, MANIFEST, signature, trusted=[key], require_signature=True)
    assert (decision.ok, decision.key_id) == (True, key.key_id)
    assert "others may write to it" in decision.changeable
    assert not decide_trust(bundle, MANIFEST + b" ", signature, trusted=[key]).ok


def test_a_wrong_signature_is_worse_than_none(bundle: Path, tmp_path: Path, key: PublicKey) -> None:
    decision = decide_trust(bundle, MANIFEST, sign(MANIFEST, tmp_path / "release"), trusted=[])
    assert not decision.ok
    assert "not trusted" in decision.why
    assert who_can_change(bundle) == ""  # the same file without its signature would have been loaded


def test_trusted_keys_come_from_the_configuration_the_environment_and_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config" / "trusted_keys").mkdir(parents=True)
    made = [generate_key(tmp_path / name) for name in ("config/trusted_keys/a", "b", "c")]
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COMPILOT_TRUSTED_KEYS", f"{tmp_path / 'b.pub'}{os.pathsep}")
    found = trusted_keys([tmp_path / "c.pub", tmp_path / "b.pub"])
    assert [key.key_id for key in found] == [key.key_id for key in made]


def test_a_key_that_others_can_change_is_no_reason_to_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "none"))
    (tmp_path / "keys").mkdir()
    generate_key(tmp_path / "keys" / "a")
    (tmp_path / "keys" / "a.pub").chmod(0o666)
    with pytest.raises(KeyProblem, match="whom to trust: others may write"):
        trusted_keys([tmp_path / "keys" / "a.pub"])
    (tmp_path / "keys").chmod(0o777)
    with pytest.raises(KeyProblem, match="keys cannot say whom to trust"):
        trusted_keys([tmp_path / "keys"])
