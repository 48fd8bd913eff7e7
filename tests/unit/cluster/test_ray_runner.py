"""The runner over a cluster, on nodes that are fakes: who does what, and what becomes of lost nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.cluster import runner as runners
from compilot.cluster.facts import ClusterNode, Link, Tried
from compilot.cluster.runner import RayRunner
from compilot.errors import EnvironmentProblem, NodeLost
from compilot.progress import Observer
from compilot.records import Candidate, Settings, Shipment, State, Trial
from compilot.testing.runner import FakeRunner, Fate, fake_fingerprint
from compilot.trials.runner import Job, RaceRules, SetRules
from compilot.tuning.comparing import side_by_side, try_eager

SHIPMENT = Shipment(sys_path=(), cwd="/", target="nowhere_at_all:model")


class FakeNode:
    """A Link to a fake runner. `dies` is asked before everything that it does."""

    def __init__(self, name: str, speed: float = 1.0, cores: int = 2) -> None:
        machine = msgspec.structs.replace(fake_fingerprint().machine, cores=cores)
        self.node = ClusterNode(id=name, name=name, host="h", fingerprint=machine, cores=cores)
        self.runner = FakeRunner(lambda candidate: Fate(speed=2.0), eager_call_s=0.01 / speed, seed=hash(name) % 97)
        self.machine = machine
        self.did: list[str] = []
        self.dies: Callable[[str], bool] = lambda what: False
        self.dead = False
        self.lock = threading.Lock()
        self.pause: dict[str, threading.Event] = {}
        self.outcome: Callable[[Trial], Trial] = lambda trial: trial

    def do(self, method: str, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        threading.Thread(target=self._work, args=(future, method, args), daemon=True).start()
        return future

    now = do

    def _work(self, future: Future[Any], method: str, args: tuple[Any, ...]) -> None:
        try:
            what = f"{method} {args[0].candidate.label}" if method == "trial" else method
            if what in self.pause:
                self.pause[what].wait(30)
            if self.dead or self.dies(what):
                self.dead = True
                raise NodeLost(f"node {self.node.name} was lost (test).")
            with self.lock:
                if method not in ("since", "ping", "missing_code"):
                    self.did.append(what)
                future.set_result(self._answer(method, args))
        except BaseException as problem:
            future.set_exception(problem)

    def _answer(self, method: str, args: tuple[Any, ...]) -> Any:
        if method == "trial":
            self.runner.submit([args[0]])
            [trial] = self.runner.completed()
            return Tried(self.outcome(trial), (), b"", self.runner.capacity)
        if method == "open":
            return self.runner.open(args[0].shipment)
        if method == "inspect":
            seen = self.runner.inspect()
            return seen._replace(fingerprint=msgspec.structs.replace(seen.fingerprint, machine=self.machine))
        if method == "confirm":
            return self.runner.confirm(*args)._replace(machine=self.node.name)
        if method == "since":
            time.sleep(0.05)
        simple = {"since": [], "ping": True, "missing_code": [], "capacity": self.runner.capacity}
        return simple[method] if method in simple else getattr(self.runner, method)(*args)

    def end(self) -> None:
        self.dead = True


class FakeCrew:
    def __init__(self, *nodes: FakeNode) -> None:
        self.all = list(nodes)
        self.closed = False

    def links(self) -> list[Link]:
        return self.joined()

    def joined(self) -> list[Link]:
        return [node for node in self.all if not node.dead]

    def forget(self, node_id: str) -> None:
        self.all = [node for node in self.all if node.node.id != node_id]

    def close(self) -> None:
        self.closed = True


class Told(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.at: list[tuple[str, str]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def at_node(self, node: str, text: str) -> None:
        self.at.append((node, text))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "LOOK_S", 0.01)
    monkeypatch.setattr(runners, "RECRUIT_S", 0.02)


def job(name: str) -> Job:
    return Job(Candidate(settings=Settings(engine=f"dynamo:{name}"), label=name, rationale="a test"), 60.0)


def begun(tmp_path: Path, *nodes: FakeNode, told: Told | None = None, **options: Any) -> RayRunner:
    crew = FakeCrew(*nodes)
    runner = RayRunner("test", RunDir(tmp_path), observer=told, crew=crew, wait_s=0.5, grace_s=0.0, **options)
    runner.open(SHIPMENT)
    runner.inspect()
    assert try_eager(runner, 60.0).state is State.OK
    return runner


def all_slots(runner: RayRunner, wanted: int) -> None:
    end = time.monotonic() + 20
    while runner.free_slots() != wanted:
        assert time.monotonic() < end, runner.free_slots()
        time.sleep(0.01)


def judged(runner: RayRunner, name: str, *, used: bool) -> None:
    end = time.monotonic() + 20
    while [line.used for line in runner.nodes() if line.node == name] != [used]:
        assert time.monotonic() < end, runner.nodes()
        runner.free_slots()


def every(runner: RayRunner) -> Iterator[Trial]:
    while runner.pending:
        yield from runner.completed()


def test_nodes_that_are_alike_share_the_candidates(tmp_path: Path) -> None:
    nodes, told = [FakeNode(name) for name in "abc"], Told()
    with begun(tmp_path, *nodes, told=told) as runner:
        all_slots(runner, 3)
        runner.submit([job(name) for name in ("x", "y", "z")])
        assert runner.free_slots() == 0
        assert sorted(trial.candidate.label for trial in every(runner)) == ["x", "y", "z"]
        assert [sum(what.startswith("trial ") and "eager" not in what for what in node.did) for node in nodes] == [
            1
        ] * 3
        assert [line.used for line in runner.nodes()] == [True] * 3
    assert ("a", "x") in told.at
    assert sum("takes candidates, too" in note for note in told.notes) == 2


def test_a_slower_node_and_another_machine_take_none(tmp_path: Path) -> None:
    slow, other, told = FakeNode("slow", speed=0.7), FakeNode("zother", cores=64), Told()
    nodes = [FakeNode("a"), FakeNode("b"), slow, other]
    with begun(tmp_path, *nodes, told=told) as runner:
        all_slots(runner, 2)
        end = time.monotonic() + 20
        while len(runner.nodes()) < 3 and time.monotonic() < end:
            runner.free_slots()
        lines = {line.node: line for line in runner.nodes()}
    assert not lines["slow"].used
    assert lines["slow"].aa_low is not None
    assert lines["slow"].aa_low > 1.1
    assert "zother" not in lines  # nothing was even opened there
    assert other.did == []
    [note] = [note for note in told.notes if note.startswith("zother is not used")]
    assert "cores 64 instead of 2" in note


def test_a_trial_is_given_as_soon_as_it_ends_while_others_go_on(tmp_path: Path) -> None:
    a, b = FakeNode("a"), FakeNode("b")
    with begun(tmp_path, a, b) as runner:
        all_slots(runner, 2)
        a.pause["trial x"] = threading.Event()
        runner.submit([job("x"), job("y")])
        assert [trial.candidate.label for trial in runner.completed()] == ["y"]
        assert runner.pending == [job("x").candidate.id]
        assert runner.free_slots() == 1
        runner.submit([job("z")])
        assert [trial.candidate.label for trial in runner.completed()] == ["z"]
        a.pause["trial x"].set()
        assert [trial.candidate.label for trial in every(runner)] == ["x"]


def test_a_lost_nodes_job_goes_to_another_and_is_nobodys_failure(tmp_path: Path) -> None:
    a, b, told = FakeNode("a"), FakeNode("b"), Told()
    with begun(tmp_path, a, b, told=told) as runner:
        all_slots(runner, 2)
        b.dies = lambda what: what == "trial y"
        runner.submit([job("x"), job("y")])
        trials = list(every(runner))
        assert sorted((trial.candidate.label, trial.state) for trial in trials) == [("x", State.OK), ("y", State.OK)]
        assert "trial y" in a.did
        assert [line.because for line in runner.nodes() if not line.used] == ["node b was lost (test)"]
    assert "node b was lost (test); what it had not finished is done elsewhere" in told.notes


def test_a_crash_on_a_node_that_dies_with_it_is_not_the_candidates(tmp_path: Path) -> None:
    a, b = FakeNode("a"), FakeNode("b")
    with begun(tmp_path, a, b) as runner:
        all_slots(runner, 2)
        a.outcome = lambda trial: msgspec.structs.replace(trial, state=State.CRASHED, reason="died of SIGTERM")
        a.dies = lambda what: what == "ping"
        runner.submit([job("x")])
        [trial] = every(runner)
        assert trial.state is State.OK  # tried again on the other one
        b.outcome = lambda trial: msgspec.structs.replace(trial, state=State.CRASHED, reason="died of SIGSEGV")
        runner.submit([job("y")])
        [trial] = every(runner)
        assert trial.state is State.CRASHED  # that node lives: this one is the candidate's own


def test_the_next_node_takes_the_race_of_a_lost_first_one(tmp_path: Path) -> None:
    a, b, told = FakeNode("a"), FakeNode("b"), Told()
    with begun(tmp_path, a, b, told=told) as runner:
        all_slots(runner, 2)
        runner.submit([job("x")])
        [trial] = every(runner)
        a.dies = lambda what: what == "race"
        race = runner.race([trial], RaceRules((20,)))
    assert len(race.processes[0].rounds) == 20
    assert "race" in b.did
    assert "b has the races and the confirmation from here on" in told.notes


def test_a_node_that_is_like_the_lost_first_one_takes_its_place(tmp_path: Path) -> None:
    a, slow, like = FakeNode("a"), FakeNode("b", speed=0.7), FakeNode("c")
    late = FakeNode("d", speed=0.7)
    with begun(tmp_path, a, slow, like) as runner:
        all_slots(runner, 2)
        judged(runner, "b", used=False)
        runner.submit([job("x")])
        trials = list(every(runner))
        a.dies = lambda what: what == "race"
        runner.race(trials, RaceRules((20,)))
        assert "race" in like.did
        assert [line.used for line in runner.nodes() if line.node == "b"] == [False]  # beside the new first one
        like.dies = lambda what: what == "race"
        runner.race(trials, RaceRules((20,)))
        assert "race" in slow.did  # the last one that is left
        assert isinstance(runner._crew, FakeCrew)
        runner._crew.all.append(late)
        end = time.monotonic() + 20
        while "d" not in runner._members and time.monotonic() < end:
            runner._recruit()
        judged(runner, "d", used=True)  # as slow as the first one is now


def test_a_node_that_never_starts_is_not_waited_for_without_limit(tmp_path: Path) -> None:
    a, b = FakeNode("a"), FakeNode("b")
    b.pause["inspect"] = threading.Event()
    with begun(tmp_path, a, b) as runner:
        runner.submit([job("x")])
        trials = list(every(runner))
        a.dies = lambda what: True
        with pytest.raises(
            EnvironmentProblem, match=r"a was lost .*; b has not opened the model within 0.5 s\); add one"
        ):
            runner.race(trials, RaceRules((20,)))
    b.pause["inspect"].set()


def test_sets_of_two_machines_are_never_put_together(tmp_path: Path) -> None:
    a, b = FakeNode("a"), FakeNode("b")
    with begun(tmp_path, a, b) as runner:
        all_slots(runner, 2)
        runner.submit([job("x")])
        [trial] = every(runner)
        a.dies = lambda what: what == "confirm" and a.did.count("confirm") == 2
        compared = side_by_side(runner, [trial], pairs=10, processes=3, purpose="confirm")
    assert len(compared.race.processes) == 3
    assert a.did.count("confirm") == 2
    assert b.did.count("confirm") == 3
    assert runner.confirm  # the protocol's own
    assert SetRules(1).pairs == 1


def test_a_node_that_joins_later_takes_over_or_helps(tmp_path: Path) -> None:
    a, late = FakeNode("a"), FakeNode("late")
    with begun(tmp_path, a) as runner:
        assert isinstance(runner._crew, FakeCrew)
        runner._crew.all.append(late)
        a.pause["trial x"] = threading.Event()
        runner.submit([job("x")])
        assert list(runner.completed()) == []  # it came back without a trial: there is a slot
        assert runner.free_slots() == 1
        a.pause["trial x"].set()
        assert [trial.candidate.label for trial in every(runner)] == ["x"]


def test_without_any_node_left_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    a = FakeNode("a")
    with begun(tmp_path, a) as runner:
        a.dies = lambda what: True
        runner.submit([job("x")])
        with pytest.raises(EnvironmentProblem, match=r"no node is left that could go on .* --resume"):
            list(every(runner))


def test_a_candidate_whose_nodes_are_always_lost_ends_the_run_and_is_not_recorded(tmp_path: Path) -> None:
    nodes = [FakeNode(name) for name in "abcd"]
    with begun(tmp_path, *nodes) as runner:
        all_slots(runner, 4)
        for node in nodes:
            node.dies = lambda what: what == "trial x"
        runner.submit([job("x")])
        with pytest.raises(EnvironmentProblem, match="3 nodes were lost while they tried 'x'"):
            list(every(runner))


def test_a_resumed_run_needs_a_machine_like_its_own(tmp_path: Path) -> None:
    like = msgspec.structs.replace(fake_fingerprint().machine, cores=128)
    with (
        pytest.raises(EnvironmentProblem, match="no node at test is a machine like the one that this run was begun on"),
        RayRunner("test", RunDir(tmp_path), crew=FakeCrew(FakeNode("a")), like=like) as runner,
    ):
        runner.open(SHIPMENT)
