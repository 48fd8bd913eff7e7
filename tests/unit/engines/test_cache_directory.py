"""The variable that names Inductor's cache is the whole process's: two models may be prepared at the same time."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from compilot._torch.compiling import CACHE_VARIABLE, cache_directory


@pytest.mark.parametrize("before", [None, "/users/own"])
def test_two_threads_each_have_their_own_folder_and_leave_the_users(
    tmp_path: Path, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(CACHE_VARIABLE, before)
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    seen: dict[str, str | None] = {}

    def first() -> None:
        with cache_directory(tmp_path / "first"):
            first_in.set()
            second_in.wait(0.3)  # long enough for the other one to come in, if it may
            seen["first"] = os.environ.get(CACHE_VARIABLE)
        first_out.set()

    def second() -> None:
        first_in.wait()
        with cache_directory(tmp_path / "second"):
            second_in.set()
            first_out.wait(0.3)
            seen["second"] = os.environ.get(CACHE_VARIABLE)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {name: str(tmp_path / name) for name in ("first", "second")}
    assert os.environ.get(CACHE_VARIABLE) == before


def test_one_inside_of_another_and_a_failure_are_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/users/own")
    with cache_directory(tmp_path), pytest.raises(ValueError, match="in the middle"), cache_directory(tmp_path / "in"):
        raise ValueError("in the middle")
    assert os.environ[CACHE_VARIABLE] == "/users/own"
    with cache_directory(None):
        assert os.environ[CACHE_VARIABLE] == "/users/own"


def test_a_child_forked_meanwhile_does_not_wait_for_its_parents_thread(tmp_path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        with cache_directory(tmp_path / "parents"):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(5)  # ends a child that waits for ever
        with cache_directory(tmp_path / "childs"):
            os._exit(0 if os.environ[CACHE_VARIABLE] == str(tmp_path / "childs") else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        leave.set()
        thread.join()
