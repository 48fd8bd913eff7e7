"""Short budgets: one build may finish, what ran out of time is tried again with more of it, and a budget is advised."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from stories import candidate, told

from compilot._durations import parse_duration
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import Candidate, Decision, Goal, Measurement, Settings, State, Trial, TrialLine, Verdict
from compilot.testing.runner import Fate
from compilot.trials.attempt import Attempt, Judge
from compilot.trials.runner import Capacity, Job
from compilot.tuning.budget import Budget, Spending
from compilot.tuning.timeouts import advised, is_worth_another, not_reached, ran_out
from compilot.verdict.unreached import clause, line

SLOW_BUILDS = {name: Fate(speed=2.0, cold_s=45.0) for name in ("one", "two", "three")}
ENDLESS = {"endless": Fate(speed=2.0, cold_s=200.0)}


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def ended(wall_s: float, limit_s: float | None = None, **more: Any) -> Trial:
    """A trial that was ended after some time."""
    limit_s = wall_s if limit_s is None else limit_s
    return Trial(candidate=candidate("slow"), state=State.TIMED_OUT, reason="", wall_s=wall_s, limit_s=limit_s, **more)


# ------------------------------------------------------------------------------------------------ one build may finish


def spending(budget_s: float, *trials: Trial) -> Spending:
    known = {trial.candidate.id: trial for trial in trials}
    return Spending(Budget(budget_s, clock=lambda: 0.0), known, lambda: Capacity(99, 5.0), Goal())


def built(one: Candidate) -> Trial:
    return Trial(candidate=one, state=State.OK, reason="", measurement=Measurement(cold_s=1.0, cold_cache=True))


def test_until_an_engine_has_built_something_a_trial_may_take_the_budget_and_at_least_a_minute() -> None:
    other_form = Candidate(settings=Settings(engine="eager", options={"n": 1}), label="eager other", rationale="")
    nothing = [Trial(candidate=candidate("x"), state=State.INFEASIBLE, reason="cannot be exported")]
    for before in ([], [built(EAGER), built(other_form)], nothing):
        assert spending(10.0, *before).trial_limit_s() == 60.0
        assert spending(300.0, *before).trial_limit_s() == 300.0
    assert spending(10.0, built(candidate("x"))).trial_limit_s() == 20.0


def test_a_short_run_lets_its_first_build_finish(tmp_path: Path) -> None:
    story = told(tmp_path, SLOW_BUILDS, budget_s=30.0)
    assert story.search.told[1].state is State.OK
    assert story.runner.tried == ["eager", "one"]


def test_a_build_that_takes_longer_than_a_minute_is_ended_all_the_same(tmp_path: Path) -> None:
    trial = told(tmp_path, ENDLESS, budget_s=30.0).search.told[1]
    assert (trial.state, trial.wall_s, trial.limit_s) == (State.TIMED_OUT, 60.0, 60.0)


def test_a_trial_keeps_the_time_that_it_was_given(tmp_path: Path) -> None:
    workers: Any = Mock(run_dir=RunDir(tmp_path))
    attempt = Attempt(workers, Job(candidate("x"), 60.0), Judge(None, None))
    assert attempt.trial.limit_s == 60.0


# ------------------------------------------------------------------------------------------------------ tried again


def test_who_only_ran_out_of_time() -> None:
    assert ran_out(ended(20.0))
    assert not ran_out(ended(610.0, limit_s=3000.0))  # a step took longer than its own limit
    assert not ran_out(ended(20.0, screening=((1.0, 0.5),)))  # failed in a race
    assert not ran_out(msgspec.structs.replace(ended(20.0), state=State.CRASHED))


@pytest.mark.parametrize(("budget_s", "again"), [(30.0, False), (40.0, True), (600.0, True)])
def test_another_try_needs_twice_the_time(budget_s: float, again: bool) -> None:
    assert is_worth_another(ended(20.0), budget_s) is again


def test_a_resumed_run_with_more_time_tries_again_what_ran_out_of_it(tmp_path: Path) -> None:
    told(tmp_path, ENDLESS, budget_s=30.0)
    heard = Notes()
    story = told(tmp_path, ENDLESS, budget_s=900.0, resume=True, observer=heard)
    assert story.runner.tried == ["eager", "endless"]
    assert "endless is tried again: it had only 60 s" in heard.notes
    assert story.verdict.decision is Decision.USE
    states = [line.trial.state for line in story.run_dir.lines() if isinstance(line, TrialLine)]
    assert states == [State.OK, State.TIMED_OUT, State.OK, State.OK]  # eager each time


def test_a_resumed_run_with_no_more_time_does_not(tmp_path: Path) -> None:
    told(tmp_path, ENDLESS, budget_s=30.0)
    story = told(tmp_path, ENDLESS, budget_s=30.0, resume=True)
    assert story.runner.tried == ["eager"]
    assert "1 timed-out" in story.verdict.because


# ---------------------------------------------------------------------------------------------------------- advice


def test_where_eager_is_kept_the_reason_names_a_budget_that_would_do(tmp_path: Path) -> None:
    story = told(tmp_path, ENDLESS, budget_s=30.0)
    said = "1 candidate ran out of time: give a budget of 4m; a resumed run keeps what is finished"
    assert story.plan.because == f"no candidate could be used: 1 timed-out; {said}"
    again = told(tmp_path, ENDLESS, budget_s=parse_duration("4m"), resume=True)
    assert again.runner.tried == ["eager", "endless"]


def test_where_another_one_won_the_result_names_it_and_the_reason_does_not(tmp_path: Path) -> None:
    fates = {"quick": Fate(speed=1.05), **ENDLESS}
    story = told(tmp_path, fates, budget_s=100.0)
    assert [t.state for t in story.search.told] == [State.OK, State.OK, State.TIMED_OUT]
    assert story.verdict.decision is Decision.USE
    assert story.verdict.not_reached is not None
    assert line(story.verdict.not_reached, "DIR").startswith("ran out of time: endless (1); about ")
    assert "ran out of time" not in story.plan.because


def test_the_advised_budget_has_room_for_each_of_them() -> None:
    assert not_reached([], [], 60.0) is None
    assert not_reached([ended(610.0, limit_s=3000.0)], [], 60.0) is None
    three, long = not_reached([ended(8.0)] * 3, [], 60.0), not_reached([ended(1800.0)], [], 290.0)
    assert three is not None
    assert long is not None
    assert "3 candidates ran out of time: give a budget of 4m;" in clause(three)
    assert "give a budget of 1h05m;" in clause(long)


def test_a_budget_is_advised_once() -> None:
    """Not confirmed in time says "give a larger budget"; with a figure for it that is left out."""
    budget = Budget(60.0, clock=lambda: 0.0)
    because = "1.5x faster, but confirmed in 2 of 3 processes when the budget ended; give a larger budget"
    kept = Verdict(decision=Decision.KEEP_EAGER, chosen_id="eager", because=because)
    told = advised(kept, [], [candidate("x")], budget)
    assert told.because == (
        "1.5x faster, but confirmed in 2 of 3 processes when the budget ended; "
        "1 candidate was not tried in time: give a budget of 2m; a resumed run keeps what is finished"
    )
    assert advised(kept, [], [], budget) is kept
