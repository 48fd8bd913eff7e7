"""The course of a search, from journal lines written by hand: when trials were, what the time was spent on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compilot.records import (
    Candidate,
    Decision,
    Diagnosis,
    DiagnosisLine,
    JournalLine,
    ProcessSamples,
    Race,
    RaceLine,
    RunHeader,
    Settings,
    State,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
)
from compilot.report.course import Phase, course, improvements

EAGER = Candidate(settings=Settings(), label="eager", rationale="")
FAST = Candidate(settings=Settings(engine="openvino"), label="openvino", rationale="")
SLOW = Candidate(settings=Settings(engine="inductor"), label="inductor", rationale="")
LATE = Candidate(settings=Settings(engine="aoti"), label="aoti", rationale="")
START = DiagnosisLine(diagnosis=Diagnosis())


def tried(candidate: Candidate, at_s: float, wall_s: float, ratio: float | None = None, **found: Any) -> TrialLine:
    screening = ((ratio, 1.0),) * 8 if ratio is not None else ()
    trial = Trial(candidate=candidate, state=State.OK, reason="fine", wall_s=wall_s, screening=screening)
    return TrialLine(trial=msgspec.structs.replace(trial, **found), at_s=at_s)


def raced(purpose: str, at_s: float, ratio: float = 2.0) -> RaceLine:
    rows = tuple((ratio, ratio * (1.0 + 0.001 * (n % 3)), 1.0) for n in range(20))
    arms = (EAGER.id, EAGER.id, FAST.id)
    sets = (ProcessSamples(rounds=rows),) * 3
    return RaceLine(race=Race(arms=arms, with_aa=True, processes=sets, purpose=purpose), at_s=at_s)


def decided(at_s: float) -> VerdictLine:
    return VerdictLine(verdict=Verdict(decision=Decision.USE, chosen_id=FAST.id, because="faster"), at_s=at_s)


@pytest.fixture
def header(small_run: Any) -> RunHeader:
    return msgspec.structs.replace(small_run.header, budget_s=60.0)


@pytest.fixture
def whole(header: RunHeader) -> list[JournalLine]:
    return [
        *(header, START, tried(EAGER, 12.0, 2.0), tried(SLOW, 20.0, 8.0, 0.8), tried(FAST, 25.0, 5.0, 2.1)),
        *(raced("race", 32.0), raced("confirm", 55.0), decided(55.5)),
    ]


def test_a_trial_ends_with_its_line_and_began_its_wall_time_before(whole: list[JournalLine]) -> None:
    marks = course(whole).marks
    assert [(mark.label, mark.from_s, mark.to_s) for mark in marks] == [
        ("eager", 10.0, 12.0),
        ("inductor", 12.0, 20.0),
        ("openvino", 20.0, 25.0),
    ]
    assert [mark.ratio for mark in marks] == [1.0, pytest.approx(0.8), pytest.approx(2.1)]
    assert [mark.label for mark in improvements(marks)] == ["eager", "openvino"]


def test_the_parts_of_the_run_follow_each_other_without_gaps(whole: list[JournalLine]) -> None:
    found = course(whole)
    assert found.phases == (
        Phase("preparing", 0.0, 10.0),
        Phase("trying", 10.0, 25.0),
        Phase("racing", 25.0, 32.0),
        Phase("confirming", 32.0, 55.5),
    )
    assert (found.end_s, found.budget_s) == (55.5, 60.0)


def test_the_ending_has_the_confirmed_figure_and_not_the_trials(whole: list[JournalLine]) -> None:
    ending = course(whole).ending
    assert ending is not None
    assert ending.versus is not None
    assert (ending.candidate_id, ending.uses, ending.at_s) == (FAST.id, True, 55.5)
    assert ending.versus.ratio == pytest.approx(2.0, rel=1e-3)


def test_an_interrupted_run_has_no_ending(whole: list[JournalLine]) -> None:
    found = course(whole[:4])
    assert found.ending is None
    assert [phase.name for phase in found.phases] == ["preparing", "trying"]
    assert course(whole[:2]).marks == course(whole[:2]).phases == ()


def test_one_that_is_struck_out_in_a_race_keeps_its_place_and_has_its_new_state(whole: list[JournalLine]) -> None:
    struck = tried(SLOW, 28.0, 8.0, 0.8, state=State.CRASHED, reason="in a race: SIGBUS")
    found = course([*whole[:5], struck, *whole[5:]])
    assert [(mark.label, mark.state) for mark in found.marks] == [
        ("eager", State.OK),
        ("inductor", State.CRASHED),
        ("openvino", State.OK),
    ]
    assert (found.marks[1].to_s, found.marks[1].reason) == (20.0, "in a race: SIGBUS")
    assert found.phases == course(whole).phases


def test_the_seconds_of_a_resumed_run_go_on(whole: list[JournalLine], header: RunHeader) -> None:
    judged = tried(SLOW, 0.5, 8.0, 0.8, state=State.WRONG, reason="judged anew")  # before the diagnosis: no trial
    found = course([*whole[:5], header, judged, START, tried(EAGER, 7.0, 2.0), tried(LATE, 9.0, 2.0, 1.5)])
    assert [(mark.label, mark.from_s, mark.to_s) for mark in found.marks[2:]] == [
        ("openvino", 20.0, 25.0),
        ("eager", 30.0, 32.0),
        ("aoti", 32.0, 34.0),
    ]
    assert found.marks[1].state is State.WRONG
    assert [phase.name for phase in found.phases] == ["preparing", "trying", "preparing", "trying"]
    assert (found.end_s, found.budget_s) == (34.0, None)


def test_what_is_tried_again_after_a_resumption_is_a_mark_of_its_own(
    whole: list[JournalLine], header: RunHeader
) -> None:
    early = tried(LATE, 24.0, 4.0, state=State.TIMED_OUT, reason="no time left")
    found = course([*whole[:4], early, header, START, tried(EAGER, 7.0, 2.0), tried(LATE, 30.0, 23.0, 1.5)])
    assert [mark.state for mark in found.marks if mark.label == "aoti"] == [State.TIMED_OUT, State.OK]
