"""A lock is waited for, but never for ever. The holders are real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from compilot.files.locks import file_lock, hold_shared, is_locked

HOLD = """
import sys
from pathlib import Path
from compilot.files.locks import file_lock
with file_lock(Path(sys.argv[1])) as got:
    print(got.held, flush=True)
    sys.stdin.read()
"""
ADD = """
import sys
from pathlib import Path
from compilot.files.locks import file_lock
for _ in range(50):
    with file_lock(Path(sys.argv[1])) as got:
        assert got.held, got.why
        number = Path(sys.argv[2])
        value = int(number.read_text())
        number.write_text(str(value + 1))
"""
Holder = subprocess.Popen[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bundle.lock"


@pytest.fixture
def hold(path: Path) -> Iterator[Callable[[], Holder]]:
    """Starts a process that holds the lock until its stdin is closed."""
    started: list[Holder] = []

    def start() -> Holder:
        command = [sys.executable, "-c", HOLD, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_free_lock_is_had_at_once_and_given_back(path: Path) -> None:
    for _ in range(2):
        with file_lock(path, wait_s=0) as got:
            assert got.held
            assert is_locked(path)
    assert not is_locked(path)


def test_a_held_lock_is_waited_for_and_then_done_without(path: Path, hold: Callable[[], Holder]) -> None:
    hold()
    with file_lock(path, wait_s=0.2) as got:
        assert not got.held
        assert got.waited_s >= 0.2
        assert "still locked by another process" in got.why


def test_a_stopped_holder_does_not_hold_up_others_for_ever(path: Path, hold: Callable[[], Holder]) -> None:
    hold().send_signal(signal.SIGSTOP)
    with file_lock(path, wait_s=0.1) as got:
        assert not got.held


def test_a_killed_holder_is_noticed(path: Path, hold: Callable[[], Holder]) -> None:
    holder = hold()
    threading.Timer(0.1, holder.kill).start()
    with file_lock(path, wait_s=300) as got:
        assert got.held


def test_a_holder_may_remove_the_file_with_its_lock(path: Path, hold: Callable[[], Holder]) -> None:
    holder = hold()
    path.unlink()
    with file_lock(path, wait_s=0) as mine:
        assert mine.held
        holder.kill()
        holder.wait()
        with file_lock(path, wait_s=0) as second:
            assert not second.held


def test_a_file_in_use_is_seen_as_such_until_its_last_user_ends(tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.touch()
    code = "import sys; from pathlib import Path; from compilot.files.locks import hold_shared as hold\n"
    code += "print(hold(Path(sys.argv[1])), hold(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(used)]
    users = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == "True True\n"
    for user in users:
        assert is_locked(used)
        user.communicate("")
    assert not is_locked(used)
    assert not hold_shared(tmp_path / "missing")


def test_a_place_without_locks_is_done_without(tmp_path: Path) -> None:
    with file_lock(tmp_path / "missing" / "lock") as got:
        assert not got.held
        assert "No such file" in got.why


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(path: Path) -> None:
    read, write = os.pipe()
    with file_lock(path) as got:
        assert got.held
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
    try:
        with file_lock(path, 0.0) as again:
            assert again.held
    finally:
        os.write(write, b".")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_many_processes_take_turns(path: Path, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    adders = [subprocess.Popen([sys.executable, "-c", ADD, str(path), str(number)]) for _ in range(4)]
    assert [adder.wait() for adder in adders] == [0] * 4
    assert number.read_text() == "200"


def test_a_wait_that_nobody_waits_for_ends_and_nothing_goes_on(path: Path, hold: Callable[[], Holder]) -> None:
    hold()
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(CancelledError), file_lock(path, wait_s=3600, stop=stop):
        pytest.fail("the body ran without the lock")
