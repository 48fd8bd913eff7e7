"""The base's code beside the working tree, and the sides made of it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from gate_history import Project

from compilot.errors import EnvironmentProblem, InputError
from compilot.gate import worktree
from compilot.gate.sides import head_side, moved_side, old_side, own_paths, repository_root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    return made


def test_a_ref_has_its_own_files_and_leaves_nothing(project: Project) -> None:
    old = project.git("rev-parse", "HEAD")
    project.edit("x)) + x", "x)) - x")
    hook = project.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    status = project.git("status", "--porcelain")
    with worktree.checked_out(project.folder, "main") as tree:
        assert tree.commit == old
        assert "x)) + x" in (tree.path / "blocks.py").read_text()
        assert not list(tree.path.glob("hooked"))
    assert not tree.path.exists()
    assert project.git("status", "--porcelain") == status
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_records_of_other_worktrees_stay(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "on a disk that is away"
    project.git("worktree", "add", "--detach", str(other))
    other.rename(tmp_path / "elsewhere")
    with worktree.checked_out(project.folder, "main") as tree:
        shutil.rmtree(tree.path)  # git cannot remove it any more: our own entry goes all the same
    assert len(project.git("worktree", "list").splitlines()) == 2
    assert str(tree.path) not in project.git("worktree", "list")


def test_a_temporary_folder_in_the_repository_is_not_used(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project.folder / "tmp"
    inside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    with worktree.checked_out(project.folder, "main") as tree:
        assert tree.path.is_relative_to(tmp_path)  # on the same disk
        assert not tree.path.is_relative_to(project.folder)
    assert not tree.path.parent.exists()
    assert not list(inside.iterdir())
    monkeypatch.setattr(worktree, "_is_free", lambda place, root: False)
    with pytest.raises(EnvironmentProblem, match=r"is in the repository .*; set TMPDIR to one outside of it\."):
        worktree.checked_out(project.folder, "main").__enter__()


def test_the_bases_files_are_on_the_repositorys_disk(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "usual"
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    with worktree.checked_out(project.folder, "main") as tree:
        assert tree.path.parent.parent == usual
    _mount(monkeypatch, usual, *map(Path, worktree.OTHER_PLACES))
    with worktree.checked_out(project.folder, "main") as tree:
        assert tree.path.parent.parent == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {"project", "usual"}
    (tmp_path / ".git").mkdir()  # it would be a new file of another repository
    with worktree.checked_out(project.folder, "main") as tree:
        assert tree.path.parent.parent == usual


def _mount(monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
    """These folders as other disks."""
    plain = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = plain(path, **options)
        return os.stat_result((*found[:2], -1, *found[3:])) if path in places else found

    monkeypatch.setattr(Path, "stat", stat)


def test_untracked_files_are_linked_where_the_commit_has_none(project: Project) -> None:
    (project.folder / "data").mkdir()
    (project.folder / "data" / "kept.txt").write_text("old")
    project.commit("data")
    (project.folder / "data" / "kept.txt").write_text("new")
    (project.folder / "data" / "weights.pt").write_text("weights")
    with worktree.checked_out(project.folder, "HEAD", ["data"]) as tree:
        assert (tree.path / "data" / "weights.pt").read_text() == "weights"
        assert (tree.path / "data" / "kept.txt").read_text() == "old"  # the commit's own stays
    assert (project.folder / "data" / "weights.pt").exists()


@pytest.mark.parametrize(
    ("ref", "links", "said"),
    [
        ("nowhere", (), "git knows no 'nowhere'"),
        ("origin/main", (), "git fetch origin main"),
        ("--upload-pack=x", (), "is no git ref"),
        ("main", ("missing.pt",), "there is no missing.pt"),
        ("main", ("/etc/hostname",), "outside of"),
    ],
)
def test_mistakes_are_one_sentence(project: Project, ref: str, links: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said), worktree.checked_out(project.folder, ref, links):
        pass


def test_what_is_wrong_with_git_is_not_taken_for_an_unknown_ref(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        patched.setenv("GIT_CONFIG_GLOBAL", "/dev/null")  # where somebody may trust every folder
        patched.setenv("GIT_CONFIG_NOSYSTEM", "1")
        with pytest.raises(EnvironmentProblem, match=r"dubious ownership.*to git's safe\.directory"):
            worktree.resolve(project.folder, "main")
    monkeypatch.setenv("PATH", str(project.folder))
    with pytest.raises(EnvironmentProblem, match="install git"):
        worktree.resolve(project.folder, "main")


def test_a_shallow_checkout_is_known_where_git_is_a_file(project: Project, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    project.commit_file("notes.txt")
    project.git("clone", "-q", "--depth=1", f"file://{project.folder}", str(shallow))
    tree = tmp_path / "tree"
    project.git("-C", str(shallow), "worktree", "add", "-q", "--detach", str(tree))
    assert (tree / ".git").is_file()
    for place in (shallow, tree):
        with pytest.raises(InputError, match="git fetch origin v1"):
            worktree.resolve(place, "v1")
    with pytest.raises(InputError, match="check its spelling"):
        worktree.resolve(project.folder, "v1")


def test_a_target_given_by_a_link_is_named_as_it_is_in_the_repository(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.folder)
    head = head_side(f"{tmp_path}/link/model.py:net")
    root = repository_root(project.folder)
    assert root is not None
    with pytest.raises(InputError, match=r"main has no model\.py; compare"):
        moved_side(head, root, tmp_path / "nowhere", "main")


def test_the_base_has_the_same_target_and_paths_in_its_own_tree(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (project.folder / "src").mkdir()
    monkeypatch.syspath_prepend(str(project.folder / "src"))
    root = repository_root(project.folder)
    assert root is not None
    tree = tmp_path / "tree"
    head = head_side("model.py:net", foreign=str(tree))
    assert str(project.folder / "src") in head.shipment.sys_path
    assert not any("site-packages" in entry for entry in head.shipment.sys_path)
    with pytest.raises(InputError, match=r"has no model\.py"):
        moved_side(head, root, tree, "main")
    tree.mkdir()
    (tree / "model.py").touch()
    base = moved_side(head, root, tree, "main")
    assert base.shipment.target == f"{tree}/model.py:net"
    assert base.shipment.cwd == str(tree)
    assert str(tree / "src") in base.shipment.sys_path
    assert base.foreign == str(root)


def test_the_working_directory_is_an_import_path_of_both_sides(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, tree = project.folder, tmp_path / "tree"
    for place in (root, tree):
        (place / "models").mkdir(parents=True)
        (place / "models" / "a.py").touch()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path and not path.startswith(str(tmp_path))])
    head = head_side("models/a.py:net")
    assert head.shipment.sys_path == (str(root / "models"), str(root))
    assert moved_side(head, root, tree, "main").shipment.sys_path == (str(tree / "models"), str(tree))
    monkeypatch.chdir(tmp_path)  # outside of the repository: nothing of the project's own
    assert head_side("project/models/a.py:net").shipment.sys_path == (str(root / "models"),)


def test_installed_packages_are_no_part_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / ".venv" / "lib" / "site-packages"
    inside.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(inside), str(tmp_path)])
    assert own_paths(tmp_path, tmp_path, None) == (str(tmp_path),)


def test_an_old_environment_must_have_torch(project: Project, tmp_path: Path) -> None:
    head = head_side("model.py:net")
    with pytest.raises(InputError, match="is no program"):
        old_side(head, tmp_path / "none")
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match=r"cannot import torch .*install the old torch"):
        old_side(head, bare)
    bare.write_text("#!/bin/sh\necho 3.10.4 2.9.1\n")
    assert old_side(head, bare).what == "torch 2.9.1 (Python 3.10.4)"
