"""Sets of processes that are fakes: what they are asked, and in which order."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from compilot.engines.eager.build import EAGER
from compilot.gate import arms, races
from compilot.gate.arms import ArmFailed, Role
from compilot.gate.effects import race_of
from compilot.gate.races import Failure, LocalRaces, OneSet, Timing, are_narrow
from compilot.gate.sides import Side
from compilot.records import Candidate, Settings, Shipment, State, WorkloadRef
from compilot.trials.child import Dead
from compilot.trials.limits import Limits
from compilot.trials.protocol import AnswersKept, ArmFacts, Opened, StateTaken

COMPILED = Candidate(settings=Settings(engine="compile"), label="torch.compile", rationale="plain")
SHIPMENT = Shipment(target="m.py:net", cwd="/", sys_path=())
# not this interpreter: no process is forked for arms that are fakes
SIDES = (Side("base", "before", SHIPMENT, python="old"), Side("head", "now", SHIPMENT))


class FakeArm:
    """An arm that writes down its steps."""

    steps: list[str] = []
    pid = os.getpid()

    was_cold: list[bool] = []

    def __init__(self, role: Role, workspace: Path, log: Path, limits: Limits, start: object = None) -> None:
        self.role, self.name = role, role.name
        self.was_cold.append(not workspace.exists())
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "built").touch()
        assert not log.exists()  # or the last words of another process would be quoted
        log.parent.mkdir(exist_ok=True)
        log.touch()

    def _note(self, step: str) -> None:
        self.steps.append(f"{self.name}: {step}")

    def begin_opening(self) -> None: ...

    def begin_building(self) -> None: ...

    def built(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def opened(self) -> Opened:
        return Opened(ref=WorkloadRef(label="Net"))

    def keep_state(self, path: Path) -> None:
        self._note("keeps")
        path.touch()

    def take_state(self, path: Path) -> StateTaken:
        self._note("takes")
        return StateTaken(parameters="", inputs="")

    def keep_answers(self, cases: Path, path: Path, *, double: bool) -> AnswersKept:
        self._note("answers in double" if double else "answers")
        return AnswersKept(repeats=True, cases=())

    def warm(self, callers: int) -> None: ...

    def look(self, *, weights: bool = False) -> ArmFacts:
        self._note("facts")
        return ArmFacts(steady_rss_bytes=1)

    def time_batch(self) -> float:
        self._note("timed")
        return 0.01

    def settle(self) -> bool:
        return True


TIMING = Timing(for_s=1.0, most=6, half_width=0.03)


def one_set(monkeypatch: pytest.MonkeyPatch, folder: Path, room: int = 99, kind: type[FakeArm] = FakeArm) -> OneSet:
    monkeypatch.setattr(races, "LiveArm", kind)
    monkeypatch.setattr(FakeArm, "steps", [])
    monkeypatch.setattr(FakeArm, "was_cold", [])
    with contextlib.closing(LocalRaces(SIDES, [EAGER, COMPILED], folder, limits=Limits())) as lab:
        lab._room = room
        return lab.one_set(0, 0, TIMING, reuse=False)


def test_a_second_check_in_the_same_folder_finds_nothing_of_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for _ in range(2):
        found = one_set(monkeypatch, tmp_path)
        assert found.failures == {}
        assert FakeArm.was_cold == [True] * 5
        assert [step for step in FakeArm.steps if step.endswith("keeps")] == ["base eager: keeps"]
        assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_builds_lie_where_the_compiler_can_find_them(tmp_path: Path) -> None:
    for name, inside in (("run", True), ("my run", False)):
        (tmp_path / name).mkdir()
        with contextlib.closing(LocalRaces(SIDES, [EAGER], tmp_path / name, limits=Limits())) as lab:
            assert lab.work.is_dir()
            assert lab.work.is_relative_to(tmp_path / name) is inside
        assert not lab.work.exists()


def test_a_set_may_have_some_of_the_arms_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(races, "LiveArm", FakeArm)
    monkeypatch.setattr(FakeArm, "steps", [])
    with contextlib.closing(LocalRaces(SIDES, [EAGER, COMPILED], tmp_path, limits=Limits())) as lab:
        found = lab.one_set(1, 0, TIMING, reuse=False, arms=["torch.compile"])
    assert set(found.samples) == set(found.with_aa) == {"torch.compile"}
    assert set(found.facts) == {"base torch.compile", "head torch.compile", "base torch.compile again"}


def test_answers_come_after_everything_that_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = one_set(monkeypatch, tmp_path)
    kinds = [step.partition(": ")[2] for step in FakeArm.steps]
    assert found.failures == {}
    assert kinds.count("answers in double") == 1
    first = kinds.index("answers in double")
    assert not {"facts", "timed"} & set(kinds[first:])
    assert set(found.answers) == {"base eager", "head eager", "base torch.compile", "head torch.compile"}


def test_every_arm_reads_the_weights_even_the_one_that_wrote_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one_set(monkeypatch, tmp_path)  # else the arms' peak memory would differ by the file
    assert [step for step in FakeArm.steps if step.endswith("keeps")] == ["base eager: keeps"]
    assert len([step for step in FakeArm.steps if step.endswith("takes")]) == 5


class IsKilled(FakeArm):
    """The head is killed while it warms up."""

    def warm(self, callers: int) -> None:
        if self.name == "head eager":
            raise ArmFailed(self.name, "killed by SIGKILL", crashed=True, by_machine=True)


def test_it_is_known_that_a_death_may_be_the_machines_doing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = one_set(monkeypatch, tmp_path, kind=IsKilled)
    assert found.failures == {"head eager": Failure("killed by SIGKILL", crashed=True, by_machine=True)}


@pytest.mark.parametrize(
    ("state", "by_machine"), [(State.INFEASIBLE, True), (State.TIMED_OUT, True), (State.CRASHED, False)]
)
def test_killed_and_late_processes_may_be_the_machines_doing(state: State, by_machine: bool) -> None:
    with pytest.raises(ArmFailed) as failed, arms._Story("head eager"):
        raise Dead("head eager", state, "gone")
    assert (failed.value.crashed, failed.value.by_machine) == (True, by_machine)


class LosesItsTwin(FakeArm):
    """The second process of the base dies in one of the groups."""

    dying = ""

    def warm(self, callers: int) -> None:
        if self.name == self.dying:
            raise ArmFailed(self.name, "killed", crashed=True)


@pytest.mark.parametrize(("dying", "kept"), [("torch.compile", {"eager"}), ("eager", {"torch.compile"})])
def test_each_arm_knows_whether_its_base_was_timed_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dying: str, kept: set[str]
) -> None:
    monkeypatch.setattr(LosesItsTwin, "dying", f"base {dying} again")
    found = one_set(monkeypatch, tmp_path, room=3, kind=LosesItsTwin)
    assert set(found.samples) == {"eager", "torch.compile"}
    assert set(found.with_aa) == kept
    for arm in found.samples:
        race = race_of([found], arm)
        assert race is not None
        assert race.with_aa == (arm in kept)


def rounds(count: int, noise: float, slower: float = 1.0) -> list[tuple[float, ...]]:
    drawn = random.Random(0)
    return [tuple(by * drawn.lognormvariate(0.0, noise) for by in (1.0, slower, 1.0)) for _ in range(count)]


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.3])
def test_a_set_ends_when_it_is_precise_whatever_it_says(slower: float) -> None:
    assert are_narrow(rounds(40, 0.02, slower), [(0, 1)], 0.03)
    assert not are_narrow(rounds(40, 0.3, slower), [(0, 1)], 0.03)
    assert not are_narrow([(1.0, 1.0, value) for value, *_ in rounds(40, 0.3)], [(0, 2)], 0.03)


def test_a_base_alone_has_no_interval_to_wait_for() -> None:
    assert not are_narrow(rounds(40, 0.02), [(0, 0)], 0.03)
