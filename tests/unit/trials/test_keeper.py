"""What a dead run leaves is ended: real small processes, which went to sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compilot.trials import keeper, marks

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
LEAVES = """
import os, signal, subprocess, sys, time
from compilot.trials import keeper
lease = keeper.lease()
shell = ["sh", "-c", "sleep 600 & echo $!; wait"]
worker = subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True, env={})
lease.watch(worker.pid)
apart = subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **lease.env})
print(worker.pid, int(worker.stdout.readline()), apart.pid, keeper._current._process.pid, flush=True)
HOW
"""
SOON_S = 20.0  # milliseconds on an idle machine


def gone(pid: int) -> bool:
    """Ended; what its parent has not yet asked after is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def soon(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + SOON_S
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


@pytest.mark.parametrize(
    "how", ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(3)", "sys.exit()"]
)
def test_however_a_process_ends_its_workers_and_what_they_started_end_with_it(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES.replace("HOW", how)], stdout=subprocess.PIPE, text=True, check=False
    )
    worker, in_the_group, apart, its_keeper = map(int, done.stdout.split())
    for pid in (worker, in_the_group, apart, its_keeper):
        assert soon(lambda pid=pid: gone(pid)), pid


def test_the_last_worker_takes_the_keeper_with_it_and_ends_what_was_never_reported() -> None:
    first, second = keeper.lease(), keeper.lease()
    process = keeper._current._process  # type: ignore[union-attr]
    unreported = subprocess.Popen(SLEEPER, env={**os.environ, **second.env}, start_new_session=True)
    first.give_back()
    first.give_back()
    assert process.poll() is None
    second.give_back()
    assert process.poll() is not None  # nothing of us is left running, and no zombie
    assert unreported.wait(timeout=SOON_S) == -signal.SIGKILL


def test_a_workers_strays_end_without_those_of_others() -> None:
    one, other = keeper.lease(), keeper.lease()
    mine, theirs = (subprocess.Popen(SLEEPER, env={**os.environ, **lease.env}) for lease in (one, other))
    try:
        one.end_strays()
        assert mine.wait(timeout=SOON_S) == -signal.SIGKILL
        assert theirs.poll() is None
    finally:
        one.give_back()
        other.give_back()
    assert theirs.wait(timeout=SOON_S) == -signal.SIGKILL


def test_a_fork_starts_with_no_leases_and_does_not_keep_the_keeper_waiting() -> None:
    lease = keeper.lease()
    process = keeper._current._process  # type: ignore[union-attr]
    pid = os.fork()
    if pid == 0:
        time.sleep(60 if keeper._current is None else 0)
        os._exit(1)
    try:
        lease.give_back()  # waits for the keeper, which waits for the end of the pipe
        assert process.returncode == 0
        assert not gone(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_keeper_that_somebody_ended_is_no_trouble() -> None:
    lease = keeper.lease()
    process = keeper._current._process  # type: ignore[union-attr]
    process.kill()
    process.wait()
    lease.watch(os.getpid())
    lease.give_back()
    assert keeper._current is None


def test_marks_are_found_by_their_beginning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(SLEEPER, env={marks.MARK: "abc.1.", "OTHER": f"{marks.MARK}=xyz."})
    try:
        assert soon(lambda: marks.marked("abc.1.") == [process.pid])
        assert marks.marked("abc.") == [process.pid]
        assert marks.marked("abc.11.") == []
        assert marks.marked("xyz.") == []
        marks.end_marked("abc.")
        assert process.wait(timeout=SOON_S) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
