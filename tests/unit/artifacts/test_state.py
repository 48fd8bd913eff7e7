"""The list of a user's runs: every run is in it, and nothing that is wrong with it stops one."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from compilot._version import __version__
from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending, begun, ended, runs

NOBODY = 65534
APPENDING = """
import sys
from pathlib import Path
from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
state.MAX_BYTES, state.KEPT_BYTES = map(int, sys.argv[2:4])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[4])):
    run = RunDir(Path(f"/runs/{sys.argv[1]}-{number}"))
    assert state.begun(run, "Net" * 50) == ""
    assert state.ended(run, state.Ending.PLAN) == ""
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the list; it is not there yet."""
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.make(tmp_path / "run")


def lines(home: Path) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in (home / "runs.jsonl").read_bytes().splitlines()]


def names() -> list[str]:
    return [known.run_dir.path.name for known in runs()]


def test_a_run_begins_and_ends(home: Path, run: RunDir) -> None:
    assert runs() == ()
    assert begun(run, "Net") == ""
    [known] = runs()
    assert (known.run_dir, known.label, known.how, known.ended_at, known.gone) == (run, "Net", None, "", False)
    assert ended(run, Ending.PLAN) == ""
    [known] = runs()
    assert (known.label, known.how) == ("Net", Ending.PLAN)
    assert known.ended_at >= known.begun_at > "2026"
    first, last = lines(home)
    assert first == {
        "schema": 1,
        "at": known.begun_at,
        "event": "begun",
        "directory": str(run),
        "compilot": __version__,
        "label": "Net",
    }
    assert (last["event"], last["how"]) == ("ended", "plan")


def test_only_the_user_can_read_it(home: Path, run: RunDir) -> None:
    before = os.umask(0)
    try:
        begun(run, "Net")
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


def test_the_run_that_began_last_comes_first_and_a_resumed_one_is_one_run(home: Path, tmp_path: Path) -> None:
    one, two = RunDir.make(tmp_path / "one"), RunDir.make(tmp_path / "two")
    begun(one, "Net")
    begun(two, "Net")
    ended(two, Ending.ERROR)
    ended(one, Ending.INTERRUPTED)
    assert [(known.run_dir, known.how) for known in runs()] == [(two, Ending.ERROR), (one, Ending.INTERRUPTED)]
    begun(one, "Net")
    assert [(known.run_dir, known.how) for known in runs()] == [(one, None), (two, Ending.ERROR)]


def test_a_directory_that_is_gone_is_marked(home: Path, run: RunDir) -> None:
    begun(run, "Net")
    run.path.rmdir()
    assert [known.gone for known in runs()] == [True]


def test_a_relative_directory_is_found_from_everywhere(
    home: Path, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun(RunDir(Path("run")), "Net")
    monkeypatch.chdir("/")
    assert [(known.run_dir, known.gone) for known in runs()] == [(run, False)]


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"COMPILOT_STATE": "own", "XDG_STATE_HOME": "xdg"}, "own"),
        ({"XDG_STATE_HOME": "xdg"}, "xdg/compilot"),
        ({}, "home/.local/state/compilot"),
    ],
)
def test_where_it_lies(
    environment: dict[str, str], place: str, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COMPILOT_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "home"} | environment).items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert begun(run, "Net") == ""
    assert (tmp_path / place / "runs.jsonl").is_file()


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"\xff\xfe\n",
        b"[]\n",
        b"null\n",
        b'{"schema":1}\n',
        b'{"schema":2,"at":"x","event":"begun","directory":"/new","compilot":"9"}\n',
        b'{"schema":1,"at":"x","event":"paused","directory":"/other","compilot":"1"}\n',
        b'{"schema":1,"at":"x","event":"begun","directory":"/to',
        b"\n\n",
    ],
)
def test_damaged_lines_and_those_of_other_versions_are_skipped(home: Path, tmp_path: Path, damage: bytes) -> None:
    begun(RunDir(tmp_path / "one"), "Net")
    with (home / "runs.jsonl").open("ab") as file:
        file.write(damage)
    assert names() == ["one"]
    assert begun(RunDir(tmp_path / "two"), "Net") == ""
    assert names() == ["two", "one"]


def start(name: str, limits: tuple[int, int], count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDING, name, *map(str, limits), str(count)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def both(limits: tuple[int, int], count: int) -> None:
    """Two processes that add at once."""
    children = [start(name, limits, count) for name in ("a", "b")]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.wait(60) for child in children] == [0, 0]
    for child in children:
        child.communicate()


def test_two_processes_add_at_once_and_nothing_is_lost(home: Path) -> None:
    both((state.MAX_BYTES, state.KEPT_BYTES), 200)
    assert len(lines(home)) == 800
    assert sorted(names()) == sorted(f"{name}-{number}" for name in "ab" for number in range(200))
    assert {known.how for known in runs()} == {Ending.PLAN}


def test_it_is_shortened_while_two_processes_add_and_the_newest_stay(home: Path) -> None:
    both((20_000, 10_000), 200)
    assert 9_000 < (home / "runs.jsonl").stat().st_size <= 20_000
    assert sorted(path.name for path in home.iterdir()) == ["runs.jsonl", "runs.lock"]
    assert names()[0] in ("a-199", "b-199")
    for name in "ab":
        numbers = [int(known.partition("-")[2]) for known in reversed(names()) if known.startswith(name)]
        assert numbers == list(range(200 - len(numbers), 200))  # no gap: nothing new was lost


def test_no_home_is_a_note(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMPILOT_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    text = "this run is missing in the list of your runs: there is no HOME; set COMPILOT_STATE to a folder of your own."
    assert begun(run, "Net") == text
    assert ended(run, Ending.PLAN) == text
    assert runs() == ()


def test_a_place_that_takes_no_folder_is_a_note(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_STATE", "/proc/self/state")
    assert "/proc/self/state cannot be used" in begun(run, "Net").replace(str(os.getpid()), "self")
    assert runs() == ()


def test_a_read_only_folder_is_a_note(home: Path, run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o500)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home and real(path, mode))  # root may write
    assert "it cannot be written to" in begun(run, "Net")
    assert runs() == ()


@pytest.mark.parametrize("taken", [0, 20])
def test_a_full_disk_is_a_note_and_the_next_line_is_whole(
    home: Path, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    begun(RunDir(tmp_path / "before"), "Net")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:taken])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert "missing in the list" in begun(run, "Net")
    assert names() == ["before"]
    assert begun(RunDir(tmp_path / "after"), "Net") == ""
    assert names() == ["after", "before"]


@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_what_others_can_change_is_left_alone(home: Path, run: RunDir, what: str, how: str) -> None:
    if how == "owner" and os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    begun(run, "Net")
    place = home if what == "folder" else home / "runs.jsonl"
    before = (home / "runs.jsonl").read_bytes()
    if how == "owner":
        os.chown(place, NOBODY, NOBODY)
    else:
        place.chmod(0o777)
    note = ended(run, Ending.PLAN)
    assert ("belongs to user 65534" if how == "owner" else "may write to") in note
    assert note.count("\n") == 0
    assert (home / "runs.jsonl").read_bytes() == before
    assert runs() == ()


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_left_alone(home: Path, run: RunDir, tmp_path: Path, what: str) -> None:
    home.mkdir(mode=0o700)
    place, target = home / "runs.jsonl", tmp_path / "target"
    target.touch()
    {"link": lambda: place.symlink_to(target), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[what]()
    assert "missing in the list" in begun(run, "Net")
    assert runs() == ()
    assert target.read_bytes() == b""


def test_a_path_without_text_and_a_working_directory_that_is_gone_are_notes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "missing in the list" in begun(RunDir(Path(os.fsdecode(b"/runs/\xff"))), "Net")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert "missing in the list" in begun(RunDir(Path("run")), "Net")


def test_a_lock_that_somebody_keeps_delays_a_run_and_stops_none(
    home: Path, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compilot.files.locks import file_lock

    home.mkdir(mode=0o700)
    monkeypatch.setattr(state, "LOCK_WAIT_S", 0.05)
    with file_lock(home / "runs.lock") as lock:
        assert lock.held
        assert begun(run, "Net") == ""
    assert names() == ["run"]
