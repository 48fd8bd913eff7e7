"""The processes behind bench/regret.py, on a runner that runs nothing: what they are started with, what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.regret_fakes import quick

import plan_arms
import regret_lab
import tune_runs
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.records import Candidate, IndexFacts, ProcessSamples, State, Trial
from compilot.testing import FakeRunner, Fate
from plan_arms import Set
from regret_lab import KEPT, Lab
from regret_steps import RaceSet
from tune_runs import Ended


class Runner(FakeRunner):
    """Leaves a file for each candidate that it tries."""

    def __init__(self, directory: RunDir, **given: Any) -> None:
        super().__init__(lambda candidate: Fate(speed=SPEEDS.get(candidate.id, 2.0), code=candidate.label))
        self.directory = directory
        self.given = given

    def submit(self, jobs: Any) -> None:
        for job in jobs:
            put(self.directory, job.candidate)
        super().submit(jobs)

    def close(self) -> None:
        self.closed = True


SPEEDS: dict[str, float] = {}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Runner]:
    """Every runner, as it is made."""
    found: list[Runner] = []

    def make(directory: RunDir, **given: Any) -> Runner:
        found.append(Runner(directory, **given))
        return found[-1]

    monkeypatch.setattr(regret_lab, "LocalRunner", make)
    monkeypatch.setattr(Runner, "clock", lambda self: 0.0)
    SPEEDS.clear()
    return found


def put(directory: RunDir, candidate: Candidate) -> None:
    folder = directory.workspace(candidate.id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").touch()


def numbered(n: int) -> Candidate:
    return quick(**{f"o{n}": True})


def test_the_first_look_has_the_doctor_and_a_later_start_does_without(tmp_path: Path, started: list[Runner]) -> None:
    lab = Lab(tmp_path, "5m")
    looked = lab.look("mlp")
    assert looked.reason == ""
    assert looked.eager is not None
    assert looked.eager.candidate == EAGER
    assert lab.attempt("mlp", numbered(0), {}).state is State.OK
    assert len(started) == 1  # one runner serves many trials
    assert started[0].given["doctor"] is not None
    lab.close()
    assert started[0].closed
    lab.attempt("mlp", numbered(1), {})
    assert started[1].given["doctor"] is None
    assert started[1].tried == ["eager", numbered(1).label]  # eager's worker is needed again; its trial counts once
    lab.attempt("lstm", numbered(1), {})
    assert started[1].closed  # one model at a time


def test_programs_that_are_known_from_the_journal_are_not_measured_again(tmp_path: Path, started: list[Runner]) -> None:
    lab = Lab(tmp_path, "5m")
    first = lab.attempt("mlp", numbered(0), {})
    trials = {first.candidate.id: first}
    twin = Candidate(settings=numbered(1).settings, label=first.candidate.label, rationale="")  # the same code
    again = Lab(tmp_path, "5m")
    assert again.attempt("mlp", twin, trials).same_as == first.candidate.id
    assert again.attempt("mlp", twin, trials, known=False).state is State.OK


def test_only_the_fastest_keep_their_files_and_one_that_is_built_for_a_race_does(
    tmp_path: Path, started: list[Runner]
) -> None:
    lab = Lab(tmp_path, "5m")
    trials: dict[str, Trial] = {}
    candidates = [numbered(n) for n in range(KEPT + 3)]
    SPEEDS.update({candidate.id: 2.0 + n / 4 for n, candidate in enumerate(candidates)})
    for candidate in candidates:
        trials[candidate.id] = lab.attempt("mlp", candidate, trials)
    assert [lab.there("mlp", candidate) for candidate in candidates] == [False] * 3 + [True] * KEPT
    lab.attempt("mlp", candidates[0], trials, known=False)
    assert lab.there("mlp", candidates[0])
    assert lab.there("mlp", EAGER)  # has no files


def test_eagers_own_failure_is_a_trial_that_did_not_happen(
    tmp_path: Path, started: list[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Runner, workload: object) -> None:
        raise EnvironmentProblem("eager's own process failed: out of memory.")

    monkeypatch.setattr(Runner, "open", fail)
    lab = Lab(tmp_path, "5m")
    assert "out of memory" in lab.look("mlp").reason
    trial = lab.attempt("mlp", numbered(0), {})
    assert trial.state is State.CRASHED
    assert "out of memory" in trial.reason
    assert all(runner.closed for runner in started)


def test_a_search_is_a_process_of_its_own_and_its_story_is_kept(
    tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, "5m")
    asked: list[tuple[str, Path, str]] = []

    def tune(model: str, folder: Path, budget: str) -> Ended:
        asked.append((model, folder, budget))
        folder.parent.mkdir(parents=True)
        folder.symlink_to(run_dir)
        return Ended(301.0)

    monkeypatch.setattr(tune_runs, "tune", tune)
    found = lab.search("mlp")
    assert asked == [("mlp", tmp_path / "tune" / "mlp", "5m")]
    assert found.problem == ""
    assert found.chosen.id == found.story.chosen
    assert found.story.spent_s is not None
    monkeypatch.setattr(tune_runs, "tune", lambda *given: Ended(1.0, "compilot tune ended with code 1"))
    assert lab.search("lstm").problem == "compilot tune ended with code 1"


def test_what_the_search_chose_is_raced_with_the_searchs_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, "5m")
    both, only_tried = numbered(0), numbered(1)
    for candidate in (both, only_tried):
        put(RunDir(lab.space_folder("mlp")), candidate)
    put(RunDir(lab.tune_folder("mlp")), both)
    homes: list[Path] = []

    def race_once(shipment: object, arms: Any, indices: IndexFacts, **rules: int) -> Set:
        homes.extend(arm.folder for arm in arms)
        assert rules == {"process": 1, "pairs": 40}
        return Set(ProcessSamples(rounds=((1.0, 1.0, 1.0),)), "", 1.0)

    monkeypatch.setattr(plan_arms, "race_once", race_once)
    raced = lab.race("mlp", RaceSet("direct", (both, only_tried, EAGER), 1, 40), IndexFacts())
    assert homes == [lab.tune_folder("mlp"), lab.space_folder("mlp"), lab.space_folder("mlp")]
    assert raced.arms == (both.id, only_tried.id, EAGER.id)
