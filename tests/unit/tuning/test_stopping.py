"""When trying candidates ends for the confirmation's sake: not before there is a gain that it could show."""

from __future__ import annotations

import math

import msgspec
import pytest

from compilot.engines.eager.build import EAGER
from compilot.records import (
    Candidate,
    Comparison,
    Decision,
    Goal,
    Measurement,
    Outcome,
    Settings,
    State,
    Trial,
    Verdict,
)
from compilot.trials.runner import Capacity
from compilot.tuning.budget import Budget, Spending
from compilot.verdict.decide import explained


def after(*ratios: float, left_s: float) -> Spending:
    """A run that has tried eager and candidates with these speed-ups at the screening."""
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    now[0] = 100.0 - left_s
    trials = [Trial(candidate=EAGER, state=State.OK, reason="")]
    for number, ratio in enumerate(ratios):
        candidate = Candidate(settings=Settings(engine="x", options={"n": number}), label=f"x{number}", rationale="")
        trials.append(Trial(candidate=candidate, state=State.OK, reason="", screening=((ratio, 1.0),) * 8))
    known = {trial.candidate.id: trial for trial in trials}
    return Spending(budget, known, lambda: Capacity(workers=99, open_s=1.0), Goal())


@pytest.mark.parametrize(
    ("run", "stops"),
    [
        (after(left_s=-5.0), False),  # one candidate is tried, however short the budget
        (after(1.01, left_s=20.0), False),  # nothing a short confirmation could show: go on trying
        (after(1.01, 1.8, left_s=20.0), True),
        (after(1.01, left_s=-1.0), True),
    ],
)
def test_trials_end_for_a_gain_worth_confirming_or_when_time_is_up(run: Spending, stops: bool) -> None:
    assert run.worth_stopping() is stops


def test_a_single_candidate_may_use_what_the_confirmation_may_run_over_to_find_a_rival() -> None:
    assert after(1.8, left_s=50.0).slack_s() == 25.0
    assert after(1.8, 1.2, left_s=50.0).slack_s() == 0.0


def test_a_trial_that_took_a_little_too_long_does_not_cost_the_race_among_finalists() -> None:
    needed_s = after(1.8, 1.7, left_s=90.0).reserve_s()
    assert after(1.8, 1.7, left_s=needed_s).affords_a_race()
    late = after(1.8, 1.7, left_s=needed_s - 4.0)  # of a budget of 100 s
    assert late.affords_a_race()
    assert late.race_share_s() >= late.race_s()
    assert not after(1.8, 1.7, left_s=needed_s - 6.0).affords_a_race()


def test_what_is_left_for_trials_is_without_the_confirmation() -> None:
    run = after(1.8, 1.2, left_s=90.0)
    assert 0.0 < run.reserve_s() < 90.0
    assert run.for_trials().remaining_s == pytest.approx(90.0 - run.reserve_s())
    assert not after(1.8, 1.2, left_s=run.reserve_s()).may_try()


def test_trials_have_no_end_while_there_is_nothing_to_confirm() -> None:
    run = after(1.01, left_s=1.0)
    assert run.for_trials().remaining_s == math.inf
    assert run.may_try()


def test_while_there_is_nothing_to_confirm_a_trial_has_more_time_and_none_is_begun_that_needs_more() -> None:
    """With the confirmation's time kept back, each trial of a kind that takes long was ended in its middle."""
    for gain, kept_back in ((1.01, False), (1.8, True)):
        run = after(gain, gain, left_s=90.0)
        some = {
            i: msgspec.structs.replace(t, measurement=Measurement(cold_s=1.0, cold_cache=True))
            for i, t in run._trials.items()
        }
        built = Spending(run.budget, some, lambda: Capacity(workers=99, open_s=5.0), Goal())
        over_s = 0.0 if kept_back else built.overrun_s
        expected_s = 90.0 - max(0.0, built.reserve_s() - over_s)
        assert 20.0 < built.reserve_s() < built.overrun_s
        assert built.trial_limit_s() == pytest.approx(max(20.0, expected_s))
        assert built.for_trials().remaining_s == pytest.approx(expected_s)


def test_another_trial_may_start_where_the_quickest_kind_fits() -> None:
    """A slow build among the last trials does not end a search whose other engines take seconds."""
    run = after(1.8, 1.2, 1.1, left_s=90.0)
    walls = zip(run._trials.items(), (1.0, 3.0, 40.0, 80.0), strict=True)
    known = {i: msgspec.structs.replace(t, wall_s=wall_s) for (i, t), wall_s in walls}
    tight = Spending(run.budget, known, lambda: Capacity(workers=99, open_s=1.0), Goal())
    room = tight.for_trials().remaining_s
    assert 3.0 < room < 80.0
    assert tight.may_try()


@pytest.mark.parametrize(("low", "advised"), [(1.06, True), (0.98, False)])
def test_a_gain_that_a_short_race_could_not_tell_from_noise_asks_for_a_longer_budget(low: float, advised: bool) -> None:
    seen = Comparison(
        candidate_id="ort",
        baseline_id=EAGER.id,
        ratio=1.23,
        low=low,
        high=1.32,
        outcome=Outcome.NO_DIFFERENCE,
        margin=0.2,
        mde=0.2,
        aa_noise=0.2,
        processes=3,
        pairs=8,
    )
    kept = Verdict(decision=Decision.KEEP_EAGER, chosen_id=EAGER.id, because="within 23 % noise", comparisons=(seen,))
    assert ("larger budget" in explained(kept, None, 3, 3).because) is advised
