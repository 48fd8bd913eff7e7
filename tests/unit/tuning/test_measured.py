"""Which races of an interrupted run still count."""

from __future__ import annotations

import pytest

from compilot.engines.eager.build import EAGER
from compilot.records import (
    Candidate,
    Decision,
    JournalLine,
    Measurement,
    ProcessSamples,
    Race,
    RaceLine,
    Settings,
    State,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WarmStartLine,
)
from compilot.tuning.measured import Measured, measured

A, B = (
    Candidate(settings=Settings(engine="inductor", mode=mode), label=mode, rationale="")
    for mode in ("default", "max-autotune")
)


def trial(candidate: Candidate, state: State = State.OK) -> TrialLine:
    return TrialLine(trial=Trial(candidate=candidate, state=state, reason=""), at_s=1.0)


def race(purpose: str, *candidates: Candidate, pairs: int = 1) -> RaceLine:
    samples = ProcessSamples(rounds=((1.0,) * (2 + len(candidates)),) * pairs, settle_timeouts=0)
    arms = (EAGER.id, EAGER.id, *(c.id for c in candidates))
    return RaceLine(race=Race(arms=arms, with_aa=True, processes=(samples,), purpose=purpose), at_s=2.0)


def warm(candidate: Candidate, cold_s: float = 1.0) -> WarmStartLine:
    measurement = Measurement(cold_s=cold_s, cold_cache=False, cold_cpu_s=1.0, compiler_runs=0)
    return WarmStartLine(candidate_id=candidate.id, measurement=measurement)


VERDICT = VerdictLine(verdict=Verdict(decision=Decision.USE, chosen_id=A.id, because="faster"), at_s=3.0)
TRIED: list[JournalLine] = [trial(EAGER), trial(A), trial(B)]
RACED = [*TRIED, race("race", A, B)]
CONFIRMED = [*RACED, race("confirm", A), warm(EAGER), warm(A, 0.5)]


@pytest.mark.parametrize("lines", [[], TRIED[:1], TRIED])
def test_before_a_race_nothing_is_measured(lines: list[JournalLine]) -> None:
    assert measured(lines, finished=False) == Measured()


@pytest.mark.parametrize("more", [[], [trial(EAGER)], [trial(EAGER), race("confirm", A), warm(EAGER)]])
def test_a_race_counts_for_its_own_arms_until_a_candidate_is_tried(more: list[JournalLine]) -> None:
    found = measured([*RACED, *more], finished=False)
    assert found.race_of([B.id, A.id]) == RACED[-1].race  # type: ignore[union-attr]
    assert found.race_of([A.id]) is None
    assert found.confirmation_of([A.id]) is None  # of the last one not every warm start is there
    for later in (trial(B, State.CRASHED), trial(A)):  # struck out, or new
        assert measured([*RACED, *more, later], finished=False) == Measured()


@pytest.mark.parametrize("more", [[], [VERDICT], [VERDICT, trial(EAGER)]])
def test_a_confirmation_counts_with_all_its_warm_starts_until_the_run_is_finished(more: list[JournalLine]) -> None:
    found = measured([*CONFIRMED, *more], finished=False).confirmation_of([A.id])
    assert found is not None
    assert found[0].purpose == "confirm"
    assert {name: one.cold_s for name, one in found[1].items()} == {EAGER.id: 1.0, A.id: 0.5}
    assert measured([*CONFIRMED, *more], finished=False).confirmation_of([B.id]) is None


def test_a_warm_start_is_the_median_of_the_sets_of_the_last_confirmation() -> None:
    again = [race("confirm", A), warm(EAGER), warm(A, 0.9), warm(EAGER), warm(A, 0.3), warm(EAGER), warm(A, 0.4)]
    found = measured([*CONFIRMED, *again], finished=False).confirmation_of([A.id])
    assert found is not None
    assert found[1][A.id].cold_s == 0.4
    assert measured([*CONFIRMED, again[0]], finished=False).confirmation_of([A.id]) is None  # those were of another one


def test_a_run_that_came_to_its_end_is_measured_again() -> None:
    assert measured([*CONFIRMED, VERDICT], finished=True) == Measured()
    assert measured(CONFIRMED, finished=True).confirmation_of([A.id])  # an earlier part of it was; this one was not


def test_of_two_races_the_last_one_counts() -> None:
    again = race("race", A, B, pairs=3)
    assert measured([*RACED, again], finished=False).race_of([A.id, B.id]) == again.race
