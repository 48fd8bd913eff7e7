"""The lease of a host: timing is alone, builds share, and nobody waits for ever."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from compilot.trials import lease

HOLD = """
import sys, time
from compilot.trials import lease
with getattr(lease, sys.argv[1])(lambda text: None) as holding:
    print("has it", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(lease.FOLDER, str(tmp_path))
    return tmp_path


class Other:
    """Another process with a lease."""

    def __init__(self, use: str) -> None:
        env = {**os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, use], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "has it\n"

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_timing_waits_for_timing_and_for_builds_of_other_processes() -> None:
    for use in ("timing", "building"):
        other = Other(use)
        told: list[str] = []
        with lease.timing(told.append, wait_s=0.2) as late:
            assert not late.held
        assert told == [told[0]]
        assert told[0].startswith("another run still has this machine")
        other.let_go()
        with lease.timing(told.append, wait_s=5.0) as mine:
            assert mine.held
        assert mine.record().held
        assert mine.record().host == lease.host()
        assert len(told) == 1


def test_a_holder_that_is_killed_lets_go_at_once() -> None:
    other = Other("timing")
    other.process.kill()
    with lease.timing(lambda text: None, wait_s=5.0) as mine:
        assert mine.held
    other.let_go()


def test_a_build_waits_for_timing_and_is_told_of_other_builds() -> None:
    timing = Other("timing")
    with lease.building(lambda text: None, wait_s=0.2) as kept_out:
        assert not kept_out.held
    timing.let_go()
    with lease.building(lambda text: None) as alone:
        assert alone.held
    assert not alone.beside
    before = Other("building")
    with lease.building(lambda text: None) as second:
        assert second.held
    assert second.beside  # one was there before
    before.let_go()
    with lease.building(lambda text: None) as first:
        Other("building").let_go()
    assert first.beside  # one came and went


def test_who_waits_to_time_is_not_overtaken_by_new_builds() -> None:
    first, order = Other("building"), []

    def use(name: str) -> None:
        with getattr(lease, name)(lambda text: None, wait_s=20.0):
            order.append(name)

    timing = threading.Thread(target=use, args=("timing",))
    timing.start()
    time.sleep(0.5)  # it is in the turnstile
    late = threading.Thread(target=use, args=("building",))
    late.start()
    time.sleep(0.3)
    assert order == []
    first.let_go()
    timing.join(30)
    late.join(30)
    assert order == ["timing", "building"]


def test_waiting_is_reported_and_names_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "TELL_S", 0.0)
    other = Other("timing")
    told: list[str] = []
    with lease.timing(told.append, wait_s=0.3):
        pass
    assert told[0].startswith(f"waiting for another run on this machine (process {other.process.pid}); at most 0 s")
    other.let_go()


def test_a_folder_without_locks_costs_the_lease_and_not_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lease.FOLDER, str(folder / "missing"))
    told: list[str] = []
    with lease.timing(told.append) as holding:
        assert not holding.held
    [text] = told
    assert text.startswith("no lease for this machine (No such file or directory)")


def test_a_link_in_the_place_of_the_lock_is_not_followed(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.write_text("precious")
    (folder / f"compilot-host-{lease.host()}.lease").symlink_to(elsewhere)
    with lease.timing(lambda text: None) as holding:
        assert not holding.held
    assert elsewhere.read_text() == "precious"


def test_every_user_may_lock_the_file(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with lease.timing(lambda text: None):
            pass
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.lease")} == {0o666}


def test_a_count_that_somebody_keeps_locked_does_not_stop_a_build(folder: Path) -> None:
    builds = folder / f"compilot-host-{lease.host()}.builds"
    builds.touch()
    done = threading.Event()

    def build() -> None:
        with lease.building(lambda text: None):
            done.set()

    with builds.open("r+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        threading.Thread(target=build, daemon=True).start()
        assert done.wait(20)
    assert builds.stat().st_size == 1  # counted all the same


def test_a_pipe_in_the_place_of_the_lock_blocks_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "TELL_S", 0.0)
    stem = f"compilot-host-{lease.host()}"
    os.mkfifo(folder / f"{stem}.lease")
    turnstile = folder / f"{stem}.next"
    turnstile.touch()
    told: list[str] = []
    done = threading.Event()

    def wait() -> None:
        with lease.timing(told.append, wait_s=0.3) as holding:
            assert not holding.held
            done.set()

    with turnstile.open("r+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        threading.Thread(target=wait, daemon=True).start()
        assert done.wait(20)
    assert told[0].startswith("waiting for another run on this machine; at most")


def test_the_users_own_folder_is_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.delenv(lease.FOLDER)
    monkeypatch.chdir(project)
    monkeypatch.setattr(tempfile, "tempdir", str(project))  # what gettempdir() falls back to
    told: list[str] = []
    for use in (lease.timing, lease.building):
        with use(told.append) as holding:
            assert not holding.held
    assert list(project.iterdir()) == []
    assert "no temporary folder can be written to; set TMPDIR" in told[0]
    monkeypatch.setenv("TMPDIR", str(project))  # somebody wants it there
    with lease.timing(told.append) as holding:
        assert holding.held
