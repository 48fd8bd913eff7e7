"""Torch's probes of vector extensions are built once per machine, and every fresh cache directory has them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from compilot._torch import compiling
from compilot.engines import vector_probes

KEY = "compiler-and-torch"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Where probes were built, by something that only writes files."""
    found: list[Path] = []

    def probe() -> bool:
        folder = Path(os.environ[compiling.CACHE_VARIABLE])
        (folder / "ab").mkdir(parents=True)
        (folder / "ab" / "probe.so").write_bytes(b"code")
        (folder / "locks").mkdir()
        found.append(folder)
        return True

    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "probe_vector_extensions", probe)
    monkeypatch.setattr(compiling, "probes_key", lambda: KEY)
    monkeypatch.setattr(compiling, "trusts_vector_isa", lambda: False)
    return found


def test_the_first_directory_has_them_built_and_others_copied(built: list[Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        with vector_probes.cache_directory(tmp_path / name):
            assert os.environ[compiling.CACHE_VARIABLE] == str(tmp_path / name)
        assert (tmp_path / name / "ab" / "probe.so").read_bytes() == b"code"
        assert not (tmp_path / name / "locks").exists()
    assert len(built) == 1
    store = tmp_path / "cache" / vector_probes.FOLDER
    assert [one.name for one in store.iterdir()] == [KEY]
    assert stat.S_IMODE(store.stat().st_mode) == 0o700


def test_a_directory_that_has_files_stays_as_it_is(built: list[Path], tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "kept.so").write_bytes(b"")
    with vector_probes.cache_directory(tmp_path / "one"):
        pass
    assert [one.name for one in (tmp_path / "one").iterdir()] == ["kept.so"]
    assert built == []


def test_no_directory_and_a_users_own_decision_ask_for_nothing(
    built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vector_probes.cache_directory(None):
        pass
    monkeypatch.setattr(compiling, "trusts_vector_isa", lambda: True)
    with vector_probes.cache_directory(tmp_path / "one"):
        pass
    assert built == []
    assert not (tmp_path / "one").exists()


def test_another_compiler_has_its_own(built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vector_probes.prepare()
    vector_probes.prepare()
    assert len(built) == 1
    monkeypatch.setattr(compiling, "probes_key", lambda: "another")
    vector_probes.prepare()
    assert len(built) == 2


def test_a_process_that_knows_already_builds_nothing_and_keeps_nothing(
    built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "probe_vector_extensions", lambda: False)
    with vector_probes.cache_directory(tmp_path / "one"):
        pass
    assert not (tmp_path / "one").exists()
    assert list((tmp_path / "cache" / vector_probes.FOLDER).iterdir()) == []


@pytest.mark.parametrize("problem", [RuntimeError("no compiler"), OSError("disk full")])
def test_what_fails_is_left_to_torch(
    built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def fail() -> str:
        raise problem

    monkeypatch.setattr(compiling, "probes_key", fail)
    with vector_probes.cache_directory(tmp_path / "one"):
        assert os.environ[compiling.CACHE_VARIABLE] == str(tmp_path / "one")
