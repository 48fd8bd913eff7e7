"""Row 24: many threads at once, first call included; forks before and after the first call."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import ForkedAfterUse
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.fast import attach_eager, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.sources import EntryParts
from conftest import NAME

X = torch.randn(2, 3)
INSIDE: list[int] = []  # calls under way; what a forward closes over is watched, and would be seen to change


def run_in_threads(number: int, work: Callable[[int], None]) -> None:
    problems: list[BaseException] = []
    barrier = threading.Barrier(number)

    def one(i: int) -> None:
        try:
            barrier.wait()
            work(i)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_row_24_eight_first_calls_at_once_make_one_preparation_and_right_answers(make_fast, engine):
    model = nn.Linear(3, 3).eval()
    engine.slow_prepare = lambda: time.sleep(0.05)
    fast = make_fast(model, X)

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                assert torch.equal(fast(X + i), model(X + i))

    run_in_threads(8, work)
    assert len(engine.prepared) == 1
    assert fast.stats() == (400, 400, {}, 1, (), {}, {})


def test_row_24_threads_in_different_modes_at_once(make_fast, engine):
    model = nn.Linear(3, 3).eval()
    fast = make_fast(model, X)
    modes = [torch.no_grad, torch.inference_mode, torch.enable_grad]

    def work(i: int) -> None:
        for k in range(60):
            with modes[(i + k) % 3]():
                assert torch.equal(fast(X + i), model(X + i))

    with pytest.warns(UserWarning, match="gradients enabled"):
        run_in_threads(6, work)
    assert len(engine.prepared) == 2
    assert fast.stats().calls == 360
    assert fast.stats().fallbacks == {"gradients enabled": 120}


def test_an_engine_that_is_not_safe_for_threads_is_called_by_one_at_a_time(make_fast, engine):
    class Busy(nn.Module):
        def forward(self, x):
            INSIDE.append(1)
            time.sleep(0.001)
            assert len(INSIDE) == 1
            INSIDE.pop()
            return x

    engine.concurrent = False
    fast = make_fast(Busy().eval(), X)
    with torch.no_grad():
        fast(X)

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(10):
                fast(X)

    run_in_threads(4, work)
    assert fast.stats().fast_share == 1.0


def in_child(work: Callable[[], None]) -> int:
    """Exit code of a forked child: 0 when work passed."""
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(60)  # a child that waits for a lock ends, too
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("no_grad", "two_threads")
@pytest.mark.parametrize("kind", ["engine", "eager"])
def test_row_24_a_fork_after_a_call_raises_one_clear_sentence(make_fast, kind):
    model = nn.ReLU().eval()
    fast = make_fast(model, X) if kind == "engine" else attach_eager(model)
    fast(X)

    def work() -> None:
        with pytest.raises(ForkedAfterUse, match="spawn"):
            fast(X)

    assert in_child(work) == 0
    assert torch.equal(fast(X), X.relu())


@pytest.mark.usefixtures("no_grad", "two_threads")
def test_row_24_a_fork_before_the_first_call_works(make_fast):
    fast = make_fast(nn.ReLU().eval(), X)

    def work() -> None:
        assert torch.equal(fast(X), X.relu())
        assert fast.stats().fast == 1

    assert in_child(work) == 0


@pytest.mark.usefixtures("no_grad")
def test_row_24_a_fork_while_another_thread_prepares_does_not_leave_the_child_locked(make_fast, engine):
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        leave.wait()

    engine.slow_prepare = slow
    fast = make_fast(nn.ReLU().eval(), X)

    def first_call() -> None:
        with torch.no_grad():
            fast(X)

    thread = threading.Thread(target=first_call)
    thread.start()
    entered.wait()

    def work() -> None:
        engine.slow_prepare = lambda: None
        assert torch.equal(fast(X), X.relu())

    try:
        assert in_child(work) == 0
    finally:
        leave.set()
        thread.join()


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("no_grad", "one_thread")
def test_a_fork_while_another_thread_counts_a_fallback_does_not_leave_the_child_locked(make_fast):
    fast = make_fast(nn.ReLU().eval(), X)
    wide = torch.randn(2, 4)
    fast(wide)

    def work() -> None:
        assert torch.equal(fast(wide), wide.relu())
        assert sum(fast.stats().fallbacks.values()) == 2

    with type(fast)._compilot_core._fallbacks._lock:  # as the thread that counts would hold it
        assert in_child(work) == 0


@pytest.mark.usefixtures("no_grad", "one_thread")
def test_a_fork_while_another_thread_learns_a_size_does_not_leave_the_child_locked(engine):
    model = nn.ReLU().eval()
    entries = []
    for n in (3, 4):
        guard = make_guard(model, Call((torch.ones(2, n),), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
        candidate = Candidate(settings=Settings(engine=NAME), label="", rationale="")
        entries.append(EntryParts(candidate, guard, None))
    fast = attach_parts(model, tuple(entries))
    core = type(fast)._compilot_core

    def work() -> None:
        wide = torch.randn(2, 40)
        assert torch.equal(fast(wide), wide.relu())
        assert sum(fast.stats().fallbacks.values()) == 1

    with core._rows._lock, core._untaken._lock:  # as threads with new sizes would hold them
        assert in_child(work) == 0


@pytest.mark.usefixtures("no_grad", "one_thread")
def test_a_fork_while_another_thread_is_in_an_engine_for_one_does_not_leave_the_child_locked(make_fast, engine):
    entered, leave = threading.Event(), threading.Event()
    wait: list[bool] = []

    class Busy(nn.Module):
        def forward(self, x):
            if wait:
                entered.set()
                leave.wait()
            return x * 2

    engine.concurrent = False
    fast = make_fast(Busy().eval(), X)
    fast(X)
    fast(X)
    wait.append(True)

    def call() -> None:
        with torch.no_grad():
            fast(X)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait()

    def work() -> None:
        wait.clear()
        assert torch.equal(fast(X), X * 2)

    try:
        assert in_child(work) == 0
    finally:
        leave.set()
        thread.join()
