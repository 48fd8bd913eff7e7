"""Signatures: only the right key, only the right bytes."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from compilot.artifacts.signing import PublicKey, Signature, generate_key, load_public_key, sign, verify
from compilot.errors import KeyProblem, SignatureRefused

DATA = b'{"schema": 1}'


@pytest.fixture
def private(tmp_path: Path) -> Path:
    generate_key(tmp_path / "release")
    return tmp_path / "release"


@pytest.fixture
def public(private: Path) -> PublicKey:
    return load_public_key(private.with_name("release.pub"))


def test_a_signature_names_the_key_that_made_it(private: Path, public: PublicKey) -> None:
    signature = sign(DATA, private)
    assert verify(DATA, signature, [public]) == public.key_id == signature.key_id
    assert len(public.key_id) == 16


def test_a_signature_survives_json(private: Path, public: PublicKey) -> None:
    text = msgspec.json.encode(sign(DATA, private))
    assert verify(DATA, msgspec.json.decode(text, type=Signature), [public]) == public.key_id


def test_every_changed_bit_of_the_data_is_seen(private: Path, public: PublicKey) -> None:
    signature = sign(DATA, private)
    for bit in range(8 * len(DATA)):
        changed = bytearray(DATA)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SignatureRefused, match="changed after it was signed"):
            verify(bytes(changed), signature, [public])


@pytest.mark.parametrize("damaged", ["", "AAAA", "not base64!", "é" * 88])
def test_a_damaged_signature_is_refused(private: Path, public: PublicKey, damaged: str) -> None:
    with pytest.raises(SignatureRefused, match="does not fit"):
        verify(DATA, msgspec.structs.replace(sign(DATA, private), signature_b64=damaged), [public])


def test_another_key_is_refused_even_if_it_claims_the_trusted_ones_id(
    private: Path, public: PublicKey, tmp_path: Path
) -> None:
    generate_key(tmp_path / "other")
    foreign = sign(DATA, tmp_path / "other")
    with pytest.raises(
        SignatureRefused, match=rf"{foreign.key_id}, which is not trusted \(trusted are {public.key_id}"
    ):
        verify(DATA, foreign, [public])
    with pytest.raises(SignatureRefused, match="no key is trusted here"):
        verify(DATA, foreign, [])
    with pytest.raises(SignatureRefused, match="does not fit"):
        verify(DATA, msgspec.structs.replace(foreign, key_id=public.key_id), [public])


def test_a_signature_of_another_kind_is_refused(private: Path, public: PublicKey) -> None:
    with pytest.raises(SignatureRefused, match="kind 'none'"):
        verify(DATA, msgspec.structs.replace(sign(DATA, private), algorithm="none"), [public])


def test_the_private_key_is_private_and_never_overwritten(private: Path) -> None:
    before = private.read_bytes()
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    with pytest.raises(KeyProblem, match="never overwritten"):
        generate_key(private)
    assert private.read_bytes() == before


def test_a_private_key_that_others_may_read_signs_nothing(private: Path) -> None:
    private.chmod(0o640)
    with pytest.raises(KeyProblem, match="others may read"):
        sign(DATA, private)


def test_files_that_are_no_such_key_are_refused(private: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pub").write_text("hello")
    other = generate_private_key(SECP256R1()).public_key()
    (tmp_path / "other.pub").write_bytes(
        other.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    )
    for file, why in {
        private: "is a private key",
        tmp_path / "text.pub": "not a key that can be read",
        tmp_path / "other.pub": "not an Ed25519 key",
        tmp_path / "missing.pub": "No such file",
    }.items():
        with pytest.raises(KeyProblem, match=why):
            load_public_key(file)
    private.with_name("release.pub").chmod(0o600)
    with pytest.raises(KeyProblem, match="not a key that can be read"):
        sign(DATA, private.with_name("release.pub"))


def test_importing_it_loads_neither_torch_nor_cryptography() -> None:
    code = "import sys, compilot.artifacts.trust; print({'torch', 'cryptography', 'numpy', 'typer'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
