"""--max-compile in a trial: a build is ended at the limit, and one that ended above it is not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import Candidate, Check, Guard, Reference, Settings, State
from compilot.trials.attempt import UNCOUNTED_S, Attempt, Judge
from compilot.trials.child import Dead
from compilot.trials.limits import Limits
from compilot.trials.protocol import Built, Verified
from compilot.trials.runner import Job

FAST = Candidate(settings=Settings(engine="onnxruntime"), label="fast", rationale="")
JUDGE = Judge(Reference(kind="float64", cases=("seed 0",)), None)


class FakeChild:
    """Answers every request for a check with what it was given."""

    owner = FAST.id

    def __init__(self, check: Check | None = None) -> None:
        self.check = check

    def ask(self, request: Any, expect: type, *, limit_s: float, doing: str) -> Any:
        assert self.check is not None
        return Verified(check=self.check)


class FakeWorkers:
    """Builds take as long as they are told; the deadline that each was given is kept."""

    def __init__(self, folder: Path, takes_s: float, *, shared_s: float = 0.0, **limits: Any) -> None:
        self.run_dir, self.observer = RunDir(folder), Observer()
        self.limits = Limits(**limits)
        self.takes_s, self.shared_s = takes_s, shared_s
        self.deadlines: list[float] = []
        self.dropped: list[str] = []
        self.dies = State.TIMED_OUT
        self.child = FakeChild()

    def live(self, candidate_id: str) -> Any:
        return self.child if candidate_id == EAGER.id else None

    def drop(self, candidate_id: str) -> None:
        self.dropped.append(candidate_id)

    def clear(self, candidate: Candidate) -> None: ...

    def spawn(self, candidate: Candidate, name: str) -> None: ...

    def open(self, candidate: Candidate, limits: Limits) -> Any:
        return self.child

    def build(self, child: Any, limits: Limits, *, known: Any) -> Built:
        self.deadlines.append(limits.build_s)
        if self.takes_s > limits.build_s:
            raise Dead(FAST.id, self.dies, "building took longer and was ended")
        guard = Guard(positional=1, keywords=(), tensors=())
        total_s = self.takes_s + self.shared_s
        return Built(cold_s=total_s, shared_s=self.shared_s, cold_cache=True, cpu_s=1.0, compiler_runs=0, guard=guard)


def attempted(
    workers: FakeWorkers, candidate: Candidate = FAST, *, limit_s: float = 500.0, beside: bool = False
) -> Attempt:
    attempt = Attempt(workers, Job(candidate, limit_s), JUDGE)  # type: ignore[arg-type]
    attempt.build(beside=beside)
    return attempt


def test_a_build_is_ended_at_the_limit_and_the_reason_is_the_users_own_words(tmp_path: Path) -> None:
    workers = FakeWorkers(tmp_path, 200.0, cold_s=30.0)
    trial = attempted(workers).measure()
    assert (trial.state, trial.reason) == (State.INFEASIBLE, "cold start took longer than the 30 s allowed")
    assert workers.deadlines == [30.0 + UNCOUNTED_S]  # what is not part of a cold start is not held against it
    assert workers.dropped[-1] == FAST.id


def test_one_that_ended_in_time_but_above_the_limit_is_not_used_and_its_time_is_kept(tmp_path: Path) -> None:
    trial = attempted(FakeWorkers(tmp_path, 33.0, cold_s=30.0)).measure()
    assert (trial.state, trial.reason) == (State.INFEASIBLE, "cold start took longer than the 30 s allowed: 33.0 s")
    assert trial.measurement is not None
    assert trial.measurement.cold_s == 33.0


def test_an_export_that_another_candidate_made_counts(tmp_path: Path) -> None:
    shared = attempted(FakeWorkers(tmp_path, 20.0, shared_s=15.0, cold_s=30.0)).trial
    assert (shared.state, shared.reason[-6:]) == (State.INFEASIBLE, "35.0 s")
    assert attempted(FakeWorkers(tmp_path, 20.0, shared_s=5.0, cold_s=30.0)).trial.state is State.OK


def test_without_a_limit_and_within_it_nothing_changes(tmp_path: Path) -> None:
    free, held = FakeWorkers(tmp_path, 200.0), FakeWorkers(tmp_path, 20.0, cold_s=30.0)
    assert attempted(free).trial.state is State.OK
    assert free.deadlines[0] > 200.0
    assert attempted(held).trial.state is State.OK


def test_eager_is_never_held_to_it(tmp_path: Path) -> None:
    workers = FakeWorkers(tmp_path, 100.0, cold_s=30.0)
    assert attempted(workers, EAGER).trial.state is State.OK
    assert workers.deadlines[0] > 100.0


def test_a_trial_that_runs_out_of_its_own_time_first_says_that(tmp_path: Path) -> None:
    trial = attempted(FakeWorkers(tmp_path, 200.0, cold_s=100.0), limit_s=50.0).trial
    assert (trial.state, trial.reason) == (State.TIMED_OUT, "building took longer and was ended")


@pytest.mark.parametrize("state", [State.CRASHED, State.INFEASIBLE])
def test_a_build_that_dies_of_something_else_says_that(tmp_path: Path, state: State) -> None:
    workers = FakeWorkers(tmp_path, 200.0, cold_s=30.0)
    workers.dies = state
    trial = attempted(workers).trial
    assert (trial.state, trial.reason) == (state, "building took longer and was ended")


@pytest.mark.parametrize("takes_s", [33.0, 200.0])
def test_a_start_beside_other_builds_is_measured_again_alone_before_it_is_out(tmp_path: Path, takes_s: float) -> None:
    workers = FakeWorkers(tmp_path, takes_s, cold_s=30.0)
    attempt = attempted(workers, beside=True)
    assert attempt.starved
    workers.takes_s = 20.0
    attempt.begin_anew()
    attempt.build()
    assert (attempt.starved, attempt.trial.state) == (False, State.OK)
    assert not attempted(FakeWorkers(tmp_path, takes_s, cold_s=30.0)).starved


def test_an_error_above_max_error_ends_the_trial_as_wrong(tmp_path: Path) -> None:
    workers = FakeWorkers(tmp_path, 1.0)
    workers.child.check = Check(passed=True, why="fine", reference="float64", relative_error=3e-4)
    attempt = Attempt(workers, Job(FAST, 60.0), JUDGE._replace(max_error=1e-4))  # type: ignore[arg-type]
    attempt.build()
    trial = attempt.measure()
    assert (trial.state, trial.reason) == (
        *(State.WRONG, "relative error 0.0003 against float64 is above the error allowed, 0.0001"),
    )
    assert trial.check is not None
    assert (trial.check.passed, trial.check.relative_error) == (False, 3e-4)
