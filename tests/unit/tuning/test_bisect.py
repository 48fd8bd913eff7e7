"""Which of several things is to blame: few questions, whatever the answers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection

import pytest

from compilot.records import Candidate, Settings, State, Trial
from compilot.tuning.bisect import Found, culprits

TWELVE = [f"h.{n}" for n in range(12)]


def make(things: Collection[str]) -> Candidate:
    return Candidate(settings=Settings(engine="x", options=dict.fromkeys(things, True)), label="", rationale="")


def asked(
    things: list[str], fails: Callable[[set[str]], bool], state: State = State.WRONG, **how: object
) -> tuple[Found, list[set[str]]]:
    """All questions up to the end, and what they came to."""
    questions, sets = culprits(things, make, **how), []  # type: ignore[arg-type]
    try:
        candidate = next(questions)
        while True:
            sets.append(set(candidate.settings.options))
            bad = fails(sets[-1])
            reason = f"in {min(sets[-1])}: it cannot" if bad else ""
            candidate = questions.send(Trial(candidate=candidate, state=state if bad else State.OK, reason=reason))
    except StopIteration as over:
        return over.value, sets


@pytest.mark.parametrize("culprit", TWELVE)
@pytest.mark.parametrize("state", [State.WRONG, State.INFEASIBLE, State.CRASHED])
def test_one_culprit_of_twelve_is_found_in_a_few_questions(culprit: str, state: State) -> None:
    found, sets = asked(TWELVE, lambda some: culprit in some, state)
    assert found.culprits == [culprit]
    assert sorted(found.good) == sorted(set(TWELVE) - {culprit})
    assert len(sets) <= math.ceil(math.log2(12)) + 2


@pytest.mark.parametrize("count", [1, 2, 3, 24, 100])
def test_the_number_of_questions_grows_with_the_logarithm(count: int) -> None:
    things = [str(n) for n in range(count)]
    most = max(len(asked(things, lambda some, bad=bad: bad in some)[1]) for bad in things)  # type: ignore[misc]
    assert most <= math.ceil(math.log2(count)) + 2


@pytest.mark.parametrize("pair", list(itertools.combinations(TWELVE, 2))[::7])
def test_two_culprits_are_both_found(pair: tuple[str, str]) -> None:
    found, sets = asked(TWELVE, lambda some: bool(some & set(pair)))
    assert set(found.culprits) == set(pair)
    assert set(found.good) == set(TWELVE) - set(pair)
    assert len(sets) <= 2 * (math.ceil(math.log2(12)) + 1) + 1


def test_things_that_fail_only_together_lose_the_later_one() -> None:
    found, _ = asked(TWELVE, lambda some: {"h.2", "h.9"} <= some)
    assert found.culprits == ["h.9"]
    assert "h.2" in found.good


def test_nothing_fails_when_tried_so() -> None:
    found, sets = asked(TWELVE, lambda some: False)
    assert (found.culprits, found.good, sets) == ([], TWELVE, [set(TWELVE)])


def test_an_engine_that_fails_everywhere_is_given_up_soon() -> None:
    found, sets = asked(TWELVE, lambda some: True)
    assert not found.done
    assert found.good == []
    assert len(sets) <= 2 * (math.ceil(math.log2(12)) + 1) + 1


def test_every_answer_that_passes_holds_more_than_the_one_before() -> None:
    random_ = random.Random(7)
    for _ in range(30):
        bad = set(random_.sample(TWELVE, 2))
        _, sets = asked(TWELVE, lambda some, bad=bad: bool(some & bad))  # type: ignore[misc]
        passing = [some for some in sets if not some & bad]
        assert all(one < other for one, other in itertools.pairwise(passing))


def test_a_reason_that_names_the_culprit_saves_the_search_for_it() -> None:
    def named(trial: Trial) -> str | None:
        return "h.7"

    found, sets = asked(TWELVE, lambda some: "h.7" in some, named=named)
    assert found.culprits == ["h.7"]
    assert len(sets) == 2


def test_a_name_that_was_not_asked_about_is_not_believed() -> None:
    found, _ = asked(TWELVE, lambda some: "h.3" in some, named=lambda trial: "somebody.else")
    assert found.culprits == ["h.3"]


def test_a_trial_that_ran_out_of_time_ends_the_search_with_what_is_known() -> None:
    questions = culprits(TWELVE, make)
    candidate = next(questions)
    candidate = questions.send(Trial(candidate=candidate, state=State.WRONG, reason=""))
    candidate = questions.send(Trial(candidate=candidate, state=State.OK, reason=""))
    with pytest.raises(StopIteration) as over:
        questions.send(Trial(candidate=candidate, state=State.TIMED_OUT, reason=""))
    assert not over.value.value.done


def test_a_large_culprit_is_looked_into() -> None:
    inner = {"b": ["b.0", "b.1", "b.2"]}
    found, _ = asked(["a", "b", "c"], lambda some: bool(some & {"b", "b.1"}), inside=lambda thing: inner.get(thing, []))
    assert found.culprits == ["b", "b.1"]
    assert set(found.good) == {"a", "c", "b.0", "b.2"}
