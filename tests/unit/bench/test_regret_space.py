"""The offered space of bench/regret.py: its order, what helped, and what its cap leaves out."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.regret_fakes import DIAGNOSIS, by_knobs, trial, two_engines

from compilot.engines.eager.build import EAGER
from compilot.records import State, Trial
from regret_space import MOST, PAIRS, SEEDS, SINGLES, Space, space

PLAIN_IS_BEST = {"quick": 2.5, "quick a": 2.3}
pytestmark = pytest.mark.usefixtures(two_engines.__name__)


def all_tried(most: int = MOST, **speeds: float) -> tuple[Space, dict[str, Trial], list[tuple[str, str]]]:
    """Try what comes next until nothing does."""
    trials = {EAGER.id: trial(EAGER, 1.0)}
    order = []
    while (one := (known := space(DIAGNOSIS, trials, most=most)).next(trials)) is not None:
        order.append((one.stage, one.candidate.label))
        trials[one.candidate.id] = trial(one.candidate, speeds.get(one.candidate.label, by_knobs(one.candidate)))
    return known, trials, order


def test_seeds_then_each_knob_on_the_best_then_pairs_of_what_helped() -> None:
    known, _, order = all_tried(**PLAIN_IS_BEST, **{"quick, b = True": 2.6, "quick, c = True": 2.7})
    assert order == [
        (SEEDS, "quick"),
        (SEEDS, "quick a"),
        (SEEDS, "slow"),
        (SINGLES, "quick, b = True"),
        (SINGLES, "quick, c = True"),
        (SINGLES, "quick, d = True"),
        (PAIRS, "quick, c = True, b = True"),
    ]
    assert known.whole
    assert known.left_out == ()


def test_a_knob_alone_that_is_a_seed_is_not_tried_twice() -> None:
    _, trials, order = all_tried(**PLAIN_IS_BEST)  # "a" alone is the other seed
    assert len({label for _, label in order}) == len(order)
    assert "quick, a = True" not in [label for _, label in order]
    assert len(trials) == len(order) + 1


def test_only_what_helped_by_more_than_a_per_cent_is_paired() -> None:
    _, _, order = all_tried(**PLAIN_IS_BEST, **{"quick, b = True": 2.6, "quick, c = True": 2.5 * 1.005})
    assert [label for stage, label in order if stage == PAIRS] == []


def test_pairs_that_promise_more_come_first() -> None:
    helping = {"quick, b = True": 2.6, "quick, c = True": 3.0, "quick, d = True": 2.8}
    _, _, order = all_tried(**PLAIN_IS_BEST, **helping)
    assert [label for stage, label in order if stage == PAIRS] == [
        "quick, c = True, d = True",
        "quick, c = True, b = True",
        "quick, d = True, b = True",
    ]


def test_the_cap_is_the_same_choice_each_time_and_says_what_it_leaves_out() -> None:
    whole, _, everything = all_tried()
    known, trials, order = all_tried(most=4)
    assert order == everything[:4]
    assert len(trials) == 5  # eager, too
    assert len(known.planned) == 4
    assert {one.candidate.label for one in known.left_out} <= {one.candidate.label for one in whole.planned}
    assert known.left_out


def test_eager_is_varied_where_no_seed_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.engines.space.can_keep_memory", lambda: True)
    _, _, order = all_tried(**{"quick": 0.9, "quick a": 0.8, "slow": 0.7})
    assert [label for stage, label in order if stage == SINGLES] == ["eager, memory kept"]


def test_a_seed_that_failed_is_no_base() -> None:
    trials = {EAGER.id: trial(EAGER, 1.0)}
    for one in space(DIAGNOSIS, trials).planned:
        wrong = one.candidate.label.startswith("quick")
        trials[one.candidate.id] = trial(one.candidate, 3.0, state=State.WRONG if wrong else State.OK)
    assert space(DIAGNOSIS, trials).planned == space(DIAGNOSIS, trials).planned[:3]  # "slow" has no knobs


def test_a_model_that_nobody_can_judge_offers_nothing() -> None:
    odd = msgspec.structs.replace(DIAGNOSIS, unjudgeable="it draws random numbers")
    assert space(odd, {EAGER.id: trial(EAGER, 1.0)}).planned == ()
