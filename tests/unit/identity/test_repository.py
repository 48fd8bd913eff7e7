"""The commit of a model's repository is noted with a run; without git, or without an answer, there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compilot.identity import repository
from compilot.identity.repository import source_commit


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one committed model."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "net.py").write_text("def net(): ...\n")
    git(folder, "add", "net.py")
    git(folder, "commit", "-q", "-m", "a model")
    return folder


def test_a_clean_and_a_changed_repository(repo: Path) -> None:
    target = f"{repo / 'net.py'}:net"
    found = source_commit(target)
    assert found is not None
    assert (found.commit, found.dirty) == (git(repo, "rev-parse", "HEAD"), False)
    (repo / "notes.txt").write_text("not tracked, so nothing of the model's\n")
    assert source_commit(target) == found
    (repo / "net.py").write_text("def net(): return 1\n")
    changed = source_commit(target)
    assert changed is not None
    assert (changed.commit, changed.dirty) == (found.commit, True)


def test_a_target_that_is_not_in_the_commit_is_dirty(repo: Path) -> None:
    (repo / "new.py").write_text("def net(): ...\n")
    found = source_commit(f"{repo / 'new.py'}:net")
    assert found is not None
    assert found.dirty


def test_live_objects_and_modules_have_the_commit_of_the_working_directory(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    commit = git(repo, "rev-parse", "HEAD")
    for target in (None, "package.module:net"):
        found = source_commit(target)
        assert found is not None
        assert found.commit == commit


def test_without_repository_commit_git_or_answer_there_is_none(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone.py").write_text("")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert source_commit(f"{tmp_path / 'alone.py'}:net") is None
    assert source_commit("/nowhere/net.py:net") is None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    (empty / "net.py").write_text("")
    assert source_commit(f"{empty / 'net.py'}:net") is None
    target = f"{repo / 'net.py'}:net"
    monkeypatch.setattr(repository, "LONGEST_S", 1e-9)
    assert source_commit(target) is None
    monkeypatch.setattr(repository, "LONGEST_S", 10.0)
    assert source_commit(target) is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit(target) is None


def test_the_header_of_a_run_has_it(repo: Path) -> None:
    from compilot.records import WorkloadRef
    from compilot.testing.runner import fake_fingerprint
    from compilot.tuning.journal import make_header
    from compilot.tuning.options import TuneOptions

    ref = WorkloadRef(label="Net", target=f"{repo / 'net.py'}:net")
    assert make_header(ref, fake_fingerprint(), TuneOptions()).source == source_commit(ref.target)
