"""Who goes from the screening into the final."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from verdict_fakes import EAGER, candidate, eager_trial, trial

from compilot.records import Goal, Measurement, Objective, State, Trial
from compilot.verdict import choose_finalists
from compilot.verdict.finalists import best_unraced, pick_finalists


def screened(name: str, ratio: float, *, pairs: int = 20, state: State = State.OK) -> Trial:
    rng = np.random.default_rng(len(name))
    times = np.exp(rng.normal(0.0, 0.02, (pairs, 2))) * [1.0, 1.0 / ratio]
    return msgspec.structs.replace(trial(candidate(name), state=state), screening=tuple(map(tuple, times.tolist())))


def names(ids: list[str], trials: list[Trial]) -> list[str]:
    return [next(t.candidate.label for t in trials if t.candidate.id == who) for who in ids]


def test_the_best_few_go_through_best_first() -> None:
    trials = [eager_trial(), screened("a", 1.2), screened("b", 2.0), screened("c", 1.5), screened("d", 1.1)]
    assert names(choose_finalists(trials), trials) == ["b", "c", "a"]
    assert names(choose_finalists(trials, limit=1), trials) == ["b"]


def test_the_clearly_slower_stay_out_but_the_best_always_goes() -> None:
    trials = [eager_trial(), screened("a", 0.5), screened("b", 1.0), screened("c", 0.7)]
    assert names(choose_finalists(trials), trials) == ["b"]
    slower = [eager_trial(), screened("a", 0.5), screened("c", 0.7)]
    assert names(choose_finalists(slower), slower) == ["c"]


def test_failed_ones_eager_and_the_same_program_twice_stay_out() -> None:
    twin = msgspec.structs.replace(screened("twin", 3.0), same_as=candidate("a").id)
    trials = [eager_trial(), screened("bad", 3.0, state=State.WRONG), twin, screened("a", 1.1)]
    assert names(choose_finalists(trials), trials) == ["a"]
    assert choose_finalists([eager_trial()]) == []
    assert EAGER.id not in choose_finalists(trials)


def test_a_candidate_without_screening_ranks_as_no_faster_than_eager() -> None:
    trials = [trial(candidate("unknown")), screened("a", 1.5), screened("c", 0.7)]
    assert names(choose_finalists(trials), trials) == ["a", "unknown"]


def started(name: str, ratio: float, cold_s: float, steady_rss_bytes: int = 1, import_s: float = 0.0) -> Trial:
    measured = Measurement(cold_s=cold_s, cold_cache=True, steady_rss_bytes=steady_rss_bytes, import_s=import_s)
    return msgspec.structs.replace(screened(name, ratio), measurement=measured)


def test_without_a_race_the_goal_itself_says_who_is_confirmed() -> None:
    """An eager call takes a second here."""
    able = [started("fast", 4.0, 100.0, 5), started("quick", 2.0, 1.0, 9)]

    def best(**goal: Any) -> list[str]:
        return [one.candidate.label for one in best_unraced(able, Goal(**goal))]

    assert best() == best(objective=Objective.P99) == ["fast"]
    assert best(horizon_calls=100) == ["quick"]  # about 51 s against 125 s
    assert best(horizon_calls=1000) == ["fast"]  # about 350 s against 501 s
    assert best(objective=Objective.STARTUP) == ["quick"]
    assert best(objective=Objective.MEMORY) == ["fast"]
    assert best_unraced([], Goal()) == best_unraced([], Goal(horizon_calls=5)) == []


def picked(trials: list[Trial], **goal: Any) -> list[str]:
    by_id = {one.candidate.id: one for one in trials}
    return [one.candidate.label for one in pick_finalists(by_id, Goal(**goal))]


def test_under_a_horizon_the_place_of_its_own_goes_to_the_least_total_and_not_to_the_cheapest_start() -> None:
    """An eager call takes a second here: what hardly gains anything starts at once, and is no plan."""
    fast = [started(name, ratio, 900.0) for name, ratio in (("a", 8.0), ("bb", 6.5), ("ccc", 5.0))]
    regional, idle = started("regional", 4.0, 20.0), started("eager, memory kept", 1.05, 0.01)
    trials = [eager_trial(), *fast, regional, idle]
    assert picked(trials) == ["a", "bb", "ccc"]
    assert picked(trials, horizon_calls=100) == ["a", "bb", "regional"]  # 45 s against 94 s, and 912 s
    assert picked(trials, horizon_calls=2) == ["a", "bb", "eager, memory kept"]
    assert picked(trials, horizon_calls=1_000_000) == ["a", "bb", "ccc"]
    assert picked(trials, objective=Objective.STARTUP) == ["a", "bb", "eager, memory kept"]


def test_importing_the_compiler_counts_in_a_total() -> None:
    able = [started("compiled", 2.0, 1.0, import_s=10.0), started("file", 2.0, 5.0)]
    assert [one.candidate.label for one in best_unraced(able, Goal(horizon_calls=10))] == ["file"]
