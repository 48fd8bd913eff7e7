"""Calls in parts, by forecast: which rule is best, when a policy cuts at all, and which entry takes what."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from shape_fakes import counts, points, program

from compilot.records import (
    DimRange,
    Guard,
    PolicyForecast,
    ShapeChoice,
    ShapeCosts,
    ShapePolicy,
    SplitRule,
    TensorGuard,
)
from compilot.verdict.policies import ShapeRules, choose, who_serves
from compilot.verdict.replay_forecast import Taker, forecast_of
from compilot.verdict.shape_costs import Costs
from compilot.verdict.shape_entries import SizePlaces, shape_entries
from compilot.verdict.splitting import MARGIN, in_parts_s, part_sizes, rules_for_all

SIZES = (1, 2, 4, 8, 16, 32)
EVEN = dict.fromkeys(SIZES, 10)
STEEP = {n: float(n if n <= 8 else 3 * n) for n in SIZES}  # beyond 8 rows a call does not fit into the cache
FLAT = {n: 4.0 + n for n in SIZES}  # every call has costs of its own
LARGEST = ShapeRules(largest=(32,))


def costs(
    static: dict[int, float] | None, dynamic: dict[int, float] | None, *, may_pad: bool = True, may_split: bool = True
) -> ShapeCosts:
    return ShapeCosts(
        eager=program({n: 10.0 * STEEP[n] for n in SIZES}),
        static=program(static) if static else None,
        dynamic=program(dynamic) if dynamic else None,
        may_pad=may_pad,
        may_split=may_split,
        pad_s=0.01,
    )


def chosen(static: dict[int, float] | None, dynamic: dict[int, float] | None, **how: bool) -> ShapeChoice:
    return choose(counts({**EVEN}), costs(static, dynamic, **how), LARGEST)


def split_of(choice: ShapeChoice) -> PolicyForecast | None:
    return next((one for one in choice.forecasts if one.policy is ShapePolicy.SPLIT), None)


def test_a_program_for_all_sizes_is_given_parts_where_large_calls_are_dear() -> None:
    choice = chosen(None, STEEP)
    assert choice.chosen.split == SplitRule(rows=8, min=16)
    assert choice.chosen.policy is ShapePolicy.SPLIT
    assert choice.because.endswith("the next best, dynamic, takes 1590 s with 1 program")
    assert "one dynamic program, calls of 16 rows and more in parts of 8" in choice.because


def test_nothing_is_cut_where_that_brings_nothing_or_is_not_proven() -> None:
    assert split_of(chosen(FLAT, FLAT)) is None
    assert chosen(FLAT, FLAT).chosen.split is None
    assert split_of(chosen(STEEP, STEEP, may_split=False)) is None
    in_two = choose(
        counts({(1, 4): 5, (8, 4): 5}),
        ShapeCosts(
            eager=program({(1, 4): 1.0, (8, 4): 90.0}),
            dynamic=program({(1, 4): 1.0, (8, 4): 80.0}),
            may_pad=True,
            may_split=True,
        ),
    )
    assert split_of(in_two) is None


def test_a_few_static_programs_serve_any_number_of_rows() -> None:
    choice = chosen(STEEP, None)
    assert choice.chosen.policy is ShapePolicy.SPLIT
    assert choice.chosen.split == SplitRule(rows=8, min=9)
    assert choice.chosen.buckets[-1].sizes == (8,)
    assert (choice.chosen.buckets[-1].split, choice.chosen.buckets[-1].calls) == (20, 30)
    every = who_serves(counts({**EVEN}), costs(STEEP, None), choice.chosen)
    served = {one.sizes[0]: (one.by, one.call_s) for one in every}
    assert served[32] == ((8,), 4 * 8.0 + 4 * 0.01)
    assert served[8] == ((8,), 8.0)


def test_without_padding_static_programs_are_not_given_what_is_left_of_a_call() -> None:
    assert split_of(chosen(STEEP, None, may_pad=False)) is None


GUARD = Guard(
    positional=1,
    keywords=(),
    tensors=(
        TensorGuard(
            path="args[0]", dtype="torch.float32", device="cpu", shape=(DimRange(min=1, max=32), 3), stride=None
        ),
    ),
)
ROWS = (SizePlaces((("args[0]", 0),)),)


def test_the_program_for_the_parts_takes_all_larger_calls() -> None:
    entries = shape_entries(chosen(STEEP, None), GUARD, ROWS, may_pad=True)
    last = entries[-1]
    assert (last.name, last.split) == ("8", SplitRule(rows=8, min=9))
    assert last.guard.tensors[0].shape[0] == DimRange(min=1, max=32)
    assert all(one.split is None for one in entries[:-1])


def test_the_program_for_all_sizes_cuts_where_no_other_one_does() -> None:
    [entry] = shape_entries(chosen(None, STEEP), GUARD, ROWS, may_pad=True)
    assert (entry.name, entry.split, entry.guard) == ("dynamic", SplitRule(rows=8, min=16), GUARD)


def test_the_forecast_of_a_replay_counts_the_parts() -> None:
    own, rule = costs(STEEP, STEEP), SplitRule(rows=8, min=9)
    static = Taker((8,), (1,), (32,), rule)
    assert forecast_of([(20,)], own, [static]) == Costs(own.eager.points).at((20,)) / (3 * 8.0 + 3 * 0.01)
    dynamic = Taker(None, (1,), (32,), rule)
    assert forecast_of([(20,)], own, [dynamic]) == Costs(own.eager.points).at((20,)) / (2 * 8.0 + 4.0 + 3 * 0.01)


curves = st.dictionaries(st.integers(1, 12), st.floats(0.5, 20.0), min_size=2, max_size=5)


@settings(max_examples=200, deadline=None)
@given(curves, st.dictionaries(st.integers(1, 16), st.integers(0, 5), min_size=1, max_size=6), st.floats(0.0, 1.0))
def test_no_rule_of_equal_parts_is_better_than_the_best_that_is_found(curve, seen, part_s) -> None:
    demand, dynamic = counts({**seen}), Costs(points(curve))

    def gain(rule: SplitRule) -> float:
        cut = [one for one in demand if one.sizes[0] >= rule.min]
        return sum(
            one.count
            * (dynamic.at(one.sizes) * (1.0 - MARGIN) - in_parts_s(one.sizes[0], rule, dynamic, part_s, pads=False))
            for one in cut
        )

    found = list(rules_for_all(demand, dynamic, part_s))
    best = max((gain(rule) for rule in found), default=0.0)
    every = [
        SplitRule(rows=rows, min=least)
        for rows in part_sizes(demand, dynamic)
        for least in range(rows + 1, max(seen) + 1)
    ]
    assert best >= max((gain(rule) for rule in every), default=0.0) - 1e-9
    assert all(rule.rows < rule.min for rule in found)
