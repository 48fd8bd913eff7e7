"""What makes a measurement doubtful is said with the decision, and nothing is said where there is no doubt."""

from __future__ import annotations

from verdict_fakes import candidate, eager_trial, race, trial

from compilot.records import Decision, WarmUp
from compilot.verdict.decide import decide

QUICK = candidate("quick")


def test_a_trials_own_doubts_come_first_and_each_once() -> None:
    doubtful = trial(QUICK, doubts=("clock unsteady", "noisy"), warm_up=WarmUp(calls=3, wall_s=1.0, steady=False))
    verdict = decide([eager_trial(), doubtful], race({QUICK.id: 2.0}, load="noisy"))
    assert verdict.decision is Decision.USE
    assert verdict.because.endswith("; doubts: clock unsteady, noisy, unsteady")


def test_without_doubts_there_is_no_word_of_them() -> None:
    verdict = decide([eager_trial(), trial(QUICK)], race({QUICK.id: 2.0}))
    assert verdict.decision is Decision.USE
    assert "doubt" not in verdict.because
