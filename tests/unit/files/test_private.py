"""The cache folder is this user's alone, or it is not used."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from compilot.files.private import Unfit, UnsafeDirectory, find_cache_home, private_directory

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(path: Path) -> Unfit:
    with pytest.raises(UnsafeDirectory) as caught:
        private_directory(path)
    assert str(path) in str(caught.value)
    return caught.value.reason


def test_a_missing_folder_is_made_private_with_those_above_it(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "a" / "b")
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)
    assert private_directory(made) == made


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert refusal(tmp_path / "link") is Unfit.LINK
    assert refusal(tmp_path / "dangling") is Unfit.LINK


def test_links_above_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert private_directory(tmp_path / "link" / "mine") == tmp_path / "real" / "mine"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") is Unfit.NOT_A_FOLDER
    assert refusal(tmp_path / "file" / "below") is Unfit.UNWRITABLE


@pytest.mark.parametrize("loose", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, loose: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(loose)
    assert refusal(tmp_path / "open") is Unfit.LOOSE_MODE


def test_a_folder_that_others_could_swap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert refusal(tmp_path / "open" / "mine") is Unfit.SWAPPABLE
    (tmp_path / "open").chmod(0o1777)  # sticky, as /tmp: others cannot rename what is mine
    assert private_directory(tmp_path / "open" / "mine").is_dir()


@as_root
@pytest.mark.parametrize(
    ("name", "members", "private"), [("me", [], True), ("me", ["me"], True), ("me", ["you"], False), ("us", [], False)]
)
def test_a_users_own_group_may_write_above_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], private: bool
) -> None:
    """Many systems give each user a group of the same name and a umask of 0002."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", 0, NOBODY, "", "/", "")))
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", NOBODY, members)))
    (tmp_path / "above").mkdir()
    os.chown(tmp_path / "above", -1, NOBODY)
    (tmp_path / "above").chmod(0o775)
    if private:
        assert private_directory(tmp_path / "above" / "mine").is_dir()
    else:
        assert refusal(tmp_path / "above" / "mine") is Unfit.SWAPPABLE


@as_root
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs" / "mine").mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    assert refusal(tmp_path / "theirs") is Unfit.OTHER_OWNER
    assert refusal(tmp_path / "theirs" / "mine") is Unfit.SWAPPABLE


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"COMPILOT_CACHE": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/compilot"),
        ({}, "home/.cache/compilot"),
    ],
)
def test_the_cache_lies_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("COMPILOT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "home"} | environment).items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert find_cache_home() == (tmp_path / expected, "")


SHOW = """
import os, sys
from compilot.files.private import cache_home, find_cache_home
if len(sys.argv) > 1:  # after the imports: another user may not be able to read this Python
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
home = find_cache_home()
assert cache_home() == home.path
print(oct(home.path.stat().st_mode & 0o7777), home.path, home.why_temporary, sep="|")
"""


def cache_of_a_process(environment: dict[str, str], *arguments: str) -> tuple[str, Path, str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-c", SHOW, *arguments]
    ran = subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=True)
    mode, path, why = ran.stdout.strip().split("|")
    return mode, Path(path), why, ran.stderr


def others_may_write(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def link_to_own_folder(folder: Path) -> None:
    (folder.parent / "own").mkdir(mode=0o700)
    folder.symlink_to("own")


def belongs_to_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (others_may_write, "others may write to it"),
        (link_to_own_folder, "it is a link"),
        pytest.param(belongs_to_another, f"it belongs to user {NOBODY}", marks=as_root),
    ],
)
def test_an_unsafe_cache_is_replaced_by_the_users_own_temporary_one(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(tmp_path / "unsafe")
    environment = {"COMPILOT_CACHE": str(tmp_path / "unsafe"), "TMPDIR": str(tmp_path)}
    mode, path, why, said = cache_of_a_process(environment)
    assert (mode, path) == ("0o700", tmp_path / f"compilot-{os.getuid()}")
    assert path.is_dir()  # whatever ends this process, only one such folder is left
    (path / "kept").touch()
    assert cache_of_a_process(environment)[:2] == (mode, path)  # and the next process takes it
    assert (path / "kept").exists()
    assert reason in why
    assert why in said
    assert list((tmp_path / "unsafe").iterdir()) == []


def test_a_temporary_cache_that_somebody_else_made_first_is_not_used(tmp_path: Path) -> None:
    taken = tmp_path / f"compilot-{os.getuid()}"
    taken.symlink_to("/etc")
    mode, path, _, said = cache_of_a_process({"HOME": "", "TMPDIR": str(tmp_path)})
    assert (mode, path.parent) == ("0o700", tmp_path)
    assert path != taken
    assert not path.exists()  # it ended with the process
    assert f"{taken} cannot be used as a private folder: it is a link" in said


def test_no_home_at_all_still_gives_a_cache(tmp_path: Path) -> None:
    mode, path, why, _ = cache_of_a_process({"HOME": "", "TMPDIR": str(tmp_path)})
    assert (mode, path.parent) == ("0o700", tmp_path)
    assert why == "there is no HOME; set COMPILOT_CACHE to a folder of your own."


@as_root
def test_a_home_that_cannot_be_written_to_still_gives_a_cache(tmp_path: Path) -> None:
    above = Path(tempfile.gettempdir())
    for folder in (tmp_path, *(parent for parent in tmp_path.parents if above in parent.parents)):
        folder.chmod(0o755)  # pytest keeps its folders from other users
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    environment = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    mode, path, why, _ = cache_of_a_process(environment, str(NOBODY))
    assert (mode, path.parent) == ("0o700", tmp_path / "tmp")
    assert "Permission denied" in why
