"""A path that is exchanged between opening, asking and reading: refused, or what was opened goes on to be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compilot.artifacts import bundle as bundles
from compilot.artifacts import trust
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.signing import generate_key
from compilot.artifacts.trust import trusted_keys
from compilot.artifacts.unpack import unpacked
from compilot.errors import BundleError, KeyProblem, UntrustedBundle
from compilot.packing.writing import publish, seal
from compilot.records import Manifest, Plan

CODE = "artifacts/0/model.so"
Maker = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, plan: Plan, bare_manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """make(path, content): a bundle at this path, a file or a folder."""
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))

    def bundle(name: str, content: bytes, *, as_folder: bool = False) -> Path:
        staged = tmp_path / "staged"
        shutil.rmtree(staged, ignore_errors=True)
        (staged / CODE).parent.mkdir(parents=True)
        (staged / CODE).write_bytes(content)
        save_plan(plan, staged / "plan.json")
        seal(staged, bare_manifest, None)
        publish(staged, tmp_path / name, as_folder=as_folder)
        return tmp_path / name

    return bundle


def before_asking(monkeypatch: pytest.MonkeyPatch, exchange: Callable[[], object]) -> None:
    """Do this when the bundle is open and its manifest read, before anybody asks who can change it."""
    real = bundles.trusted_or_refused

    def asked(*arguments: object) -> object:
        exchange()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bundles, "trusted_or_refused", asked)


def opened_code(path: Path) -> bytes:
    with bundles.open_bundle(path, Trust()) as opened:
        return (unpacked(opened) / CODE).read_bytes()


def replace(path: Path, other: Path, how: Callable[[Path, Path], object]) -> None:
    path.rename(path.with_name("opened"))
    how(other, path)


@pytest.mark.parametrize(("how", "why"), [(os.symlink, "it is a link"), (shutil.copy, "it was replaced")])
def test_an_open_file_is_not_vouched_for_by_another_at_its_path(
    make: Maker, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path, Path], object], why: str
) -> None:
    evil, good = make("evil.cpbundle", b"evil"), make("good.cpbundle", b"good")
    evil.chmod(0o666)
    before_asking(monkeypatch, lambda: replace(evil, good, how))
    with pytest.raises(UntrustedBundle, match=why):
        opened_code(evil)


def test_a_folder_above_that_became_a_link_vouches_for_nothing(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = make("loose/net.cpbundle", b"evil")
    make("tight/net.cpbundle", b"good")
    evil.parent.chmod(0o777)
    before_asking(monkeypatch, lambda: replace(evil.parent, tmp_path / "tight", os.symlink))
    with pytest.raises(UntrustedBundle, match="was replaced by a link"):
        opened_code(evil)


def test_what_was_opened_is_what_is_unpacked(make: Maker) -> None:
    path, evil = make("net.cpbundle", b"good"), make("evil.cpbundle", b"evil")
    with bundles.open_bundle(path, Trust()) as opened:
        os.replace(evil, path)
        assert (unpacked(opened) / CODE).read_bytes() == b"good"


@pytest.mark.parametrize("name", ["manifest.json", CODE, "artifacts"])
def test_a_folder_is_not_vouched_for_by_what_was_put_in_meanwhile(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = make("net", b"code", as_folder=True)
    loose, aside = folder / name, tmp_path / "opened"
    loose.chmod(0o777)

    def exchange() -> None:
        loose.rename(aside)
        shutil.copytree(aside, loose) if aside.is_dir() else shutil.copy(aside, loose)
        loose.chmod(0o755)

    before_asking(monkeypatch, exchange)
    with pytest.raises(UntrustedBundle, match="it was replaced"):
        opened_code(folder)


def test_a_file_of_a_folder_is_read_only_while_it_is_the_one_that_was_seen(make: Maker, tmp_path: Path) -> None:
    folder = make("net", b"code", as_folder=True)
    with bundles.open_bundle(folder, Trust()) as opened:
        shutil.copy(folder / CODE, tmp_path / "same")
        os.replace(tmp_path / "same", folder / CODE)
        with pytest.raises(BundleError, match=r"model\.so was replaced"):
            unpacked(opened)


def test_a_pipe_in_place_of_a_bundle_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.cpbundle")
    with pytest.raises(BundleError, match="not a plain file"):
        opened_code(tmp_path / "net.cpbundle")


def test_a_key_is_not_vouched_for_by_another_at_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "none"))
    generate_key(tmp_path / "evil")
    generate_key(tmp_path / "good")
    (tmp_path / "evil.pub").chmod(0o666)
    real = trust.must_be_safe

    def asked(place: Path, *rest: os.stat_result) -> None:
        os.replace(tmp_path / "good.pub", place)
        real(place, *rest)

    monkeypatch.setattr(trust, "must_be_safe", asked)
    with pytest.raises(KeyProblem, match="it was replaced"):
        trusted_keys([tmp_path / "evil.pub"])
