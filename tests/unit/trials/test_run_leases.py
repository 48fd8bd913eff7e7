"""The leases of a run: one long wait in vain is enough, waiting is counted, and every timed step has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import Padding, State, Trial
from compilot.trials import lease, local
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.run_leases import SHORT_WAIT_S, RunLeases
from compilot.trials.runner import ReplayRules


class Locks:
    """In the place of the host's lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = True
        self.asked: list[tuple[str, float]] = []
        self.now: list[str] = []  # held at this moment
        for name in ("timing", "building"):
            monkeypatch.setattr(lease, name, self._use(name))

    def _use(self, name: str) -> Any:
        @contextmanager
        def enter(tell: lease.Tell, wait_s: float = lease.WAIT_S) -> Iterator[lease.Holding]:
            self.asked.append((name, wait_s))
            if not self.free:
                tell("another run still has this machine")
            self.now.append(name)
            yield lease.Holding(lease.Use(name), held=self.free, waited_s=0.0 if self.free else wait_s)
            self.now.remove(name)

        return enter


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Locks:
    return Locks(monkeypatch)


def test_after_one_wait_in_vain_the_next_are_short_until_the_lock_was_had(locks: Locks) -> None:
    told: list[str] = []
    leases = RunLeases(told.append)
    for free in (True, False, False, True, False):
        locks.free = free
        with leases.timing():
            pass
    with leases.building():
        pass
    assert [wait_s for _, wait_s in locks.asked] == [lease.WAIT_S] * 2 + [SHORT_WAIT_S] * 2 + [
        lease.WAIT_S,
        SHORT_WAIT_S,
    ]
    assert leases.waited_s == 2 * lease.WAIT_S + 2 * SHORT_WAIT_S
    assert told == ["another run still has this machine"]  # once


def runner_in(folder: Path, **how: Any) -> LocalRunner:
    return LocalRunner(RunDir.make(folder / "run"), limits=Limits(), observer=Observer(), **how)


@pytest.mark.parametrize(("judges_speed", "used"), [(True, "timing"), (False, "building")])
def test_who_judges_no_speed_never_takes_the_machine_alone(
    tmp_path: Path, locks: Locks, judges_speed: bool, used: str
) -> None:
    runner = runner_in(tmp_path, judges_speed=judges_speed)
    with runner._timing():
        assert locks.now == [used]


def test_what_was_waited_is_known_of_the_runner(tmp_path: Path, locks: Locks) -> None:
    runner = runner_in(tmp_path)
    assert runner.capacity.waited_s == 0.0
    locks.free = False
    with runner._timing():
        pass
    assert runner.capacity.waited_s == lease.WAIT_S


def test_a_replay_is_timed_under_the_lease(tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    monkeypatch.setattr(local.replaying, "replay", lambda *_: held.extend(locks.now))
    runner_in(tmp_path).replay([], ReplayRules(requests=4))
    assert held == ["timing"]
    assert locks.now == []


def test_requests_of_changing_sizes_are_timed_under_the_lease(
    tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    runner = runner_in(tmp_path)
    monkeypatch.setattr(runner, "_raced", lambda _: SimpleNamespace())
    monkeypatch.setattr(runner.workers, "answer_requests", lambda *_: 4)
    monkeypatch.setattr(local.replaying, "timed", lambda *_: held.extend(locks.now))
    runner.over_requests([], ReplayRules(requests=4))
    assert held == ["timing"]
    assert locks.now == []


def test_what_padding_takes_is_timed_under_the_lease(
    tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    runner = runner_in(tmp_path)
    child = SimpleNamespace(ask=lambda *_, **__: held.extend(locks.now))
    monkeypatch.setattr(runner, "_raced", lambda _: child)
    monkeypatch.setattr(runner.workers, "work_on", lambda *_: None)
    monkeypatch.setattr(local, "must", lambda *_: SimpleNamespace(leak=None, pad_s=0.25))
    seen = runner.check_padding(Trial(candidate=EAGER, state=State.OK, reason=""), Padding(dims=()))
    assert seen.pad_s == 0.25
    assert held == ["timing"]


def test_a_reference_of_other_sizes_is_not_made_beside_the_timing_of_others(
    tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    runner = runner_in(tmp_path)
    child = SimpleNamespace(ask=lambda *_, **__: held.extend(locks.now), kill=lambda: None)
    monkeypatch.setattr(type(runner.workers), "eager", child)
    monkeypatch.setattr(local, "answered", lambda _: SimpleNamespace(reference="made"))
    assert runner._refer({"x:0": 4}, tmp_path / "4") == "made"
    assert held == ["building"]
