"""How calls of different sizes are served best, by forecast."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_fakes import counts, program

from compilot.errors import InputError
from compilot.records import PolicyForecast, ShapeChoice, ShapeCosts, ShapePolicy, SizeDemand
from compilot.verdict.policies import ShapeRules, choose, merged, powers_of_two, who_serves

LINE = {1: 1e-3, 512: 512e-3}  # a millisecond for each token


def costs(
    *, static: float | None = 0.5, dynamic: float | None = 0.7, may_pad: bool = True, build_s: float = 0.0
) -> ShapeCosts:
    """Programs that take these shares of eager's time."""

    def times(share: float) -> dict[int, float]:
        return {size: share * call_s for size, call_s in LINE.items()}

    return ShapeCosts(
        eager=program(LINE),
        static=None if static is None else program(times(static), build_s=build_s),
        dynamic=None if dynamic is None else program(times(dynamic), build_s=build_s),
        may_pad=may_pad,
    )


def of(choice: ShapeChoice, policy: ShapePolicy) -> PolicyForecast:
    return next(one for one in choice.forecasts if one.policy is policy)


TEXTS = counts({10: 500, 12: 400, 37: 300, 120: 50, 121: 50, 480: 3})


def test_every_policy_has_a_forecast_and_the_best_one_is_chosen() -> None:
    choice = choose(TEXTS, costs(), ShapeRules(max_entries=10))
    assert [one.policy for one in choice.forecasts] == [
        *(ShapePolicy.EAGER, ShapePolicy.DYNAMIC, ShapePolicy.STATIC),
        *(ShapePolicy.POWERS_OF_TWO, ShapePolicy.BUCKETS, ShapePolicy.MIXED),
    ]
    assert choice.chosen.total_s <= min(one.total_s for one in choice.forecasts) * 1.02
    assert choice.forecasts[0].calls_s == pytest.approx(sum(one.count * one.sizes[0] for one in TEXTS) * 1e-3)
    assert (choice.calls, choice.distinct) == (1303, 6)
    assert "1303 calls of 6 sizes" in choice.because
    assert choice.speedup > 1.9


def test_chosen_buckets_beat_powers_of_two_and_say_what_they_serve() -> None:
    choice = choose(TEXTS, costs(dynamic=None), ShapeRules(max_entries=6))
    buckets, powers = of(choice, ShapePolicy.BUCKETS), of(choice, ShapePolicy.POWERS_OF_TWO)
    assert buckets.total_s < powers.total_s
    assert sum(one.calls for one in buckets.buckets) == choice.calls
    assert buckets.buckets[-1].sizes >= (480,)
    assert all(one.padded <= one.calls and one.smallest <= one.sizes for one in buckets.buckets)


def test_powers_of_two_end_at_the_largest_size() -> None:
    assert powers_of_two([(10,), (12,), (37,), (480,)], (500,)) == ((16,), (64,), (500,))
    assert powers_of_two([(3, 40), (4, 64)]) == ((4, 64),)
    assert len(powers_of_two([(size,) for size in range(1, 513)])) == 10


def test_rare_sizes_go_to_the_dynamic_program_behind_the_static_ones() -> None:
    choice = choose(TEXTS, costs(), ShapeRules(max_entries=3))
    assert choice.chosen.policy is ShapePolicy.MIXED
    assert choice.chosen.uses_dynamic
    assert choice.chosen.dynamic_calls + sum(one.calls for one in choice.chosen.buckets) == choice.calls
    assert choice.chosen.entries <= 3
    assert "one dynamic program for" in choice.because


def test_without_a_proof_of_padding_each_static_program_serves_its_own_size_alone() -> None:
    choice = choose(TEXTS, costs(may_pad=False), ShapeRules(max_entries=3))
    assert ShapePolicy.BUCKETS not in {one.policy for one in choice.forecasts}
    mixed = of(choice, ShapePolicy.MIXED)
    assert {one.sizes for one in mixed.buckets} < {one.sizes for one in TEXTS}
    assert not any(one.padded for one in mixed.buckets)
    assert mixed.dynamic_calls > 0
    static = of(choice, ShapePolicy.STATIC)
    assert static.eager_calls == choice.calls - sum(one.calls for one in static.buckets)


def test_a_policy_that_serves_every_size_is_preferred_to_one_that_leaves_some_to_eager() -> None:
    seen = counts({10: 1000, 12: 1, 37: 1000})
    choice = choose(seen, costs(dynamic=None), ShapeRules(max_entries=3))
    assert of(choice, ShapePolicy.STATIC).entries < of(choice, ShapePolicy.BUCKETS).entries + 1
    assert of(choice, ShapePolicy.STATIC).eager_calls == 1
    assert choice.chosen.policy is ShapePolicy.BUCKETS
    assert choice.chosen.eager_calls == 0


@pytest.mark.parametrize("may_pad", [True, False])
def test_who_serves_what_adds_up_to_the_forecast(may_pad: bool) -> None:
    choice = choose(TEXTS, costs(may_pad=may_pad), ShapeRules(max_entries=10))
    for forecast in choice.forecasts:
        served = who_serves(TEXTS, costs(may_pad=may_pad), forecast)
        assert sum(one.calls * one.call_s for one in served) == pytest.approx(forecast.calls_s)
        assert sum(one.calls for one in served if one.by == "dynamic") == forecast.dynamic_calls
        assert sum(one.calls for one in served if one.by == "eager") == forecast.eager_calls


@pytest.mark.parametrize("may_pad", [True, False])
def test_a_policy_without_a_program_of_its_own_is_none(may_pad: bool) -> None:
    slow = choose(TEXTS, costs(static=2.0, may_pad=may_pad))
    assert ShapePolicy.STATIC not in {one.policy for one in slow.forecasts}
    one = choose(TEXTS, costs(may_pad=may_pad), ShapeRules(max_entries=1))
    assert ShapePolicy.MIXED not in {one.policy for one in one.forecasts}
    assert all(one.buckets for one in slow.forecasts if one.policy not in (ShapePolicy.EAGER, ShapePolicy.DYNAMIC))


def test_another_entry_must_be_worth_it() -> None:
    flat = ShapeCosts(eager=program(LINE), static=program({1: 0.1, 512: 0.1005}), may_pad=True)
    choice = choose(counts({1: 10, 100: 10, 512: 10}), flat)
    assert of(choice, ShapePolicy.BUCKETS).entries == 1  # all of them take a tenth of a second


@pytest.mark.parametrize(("horizon", "entries"), [(None, 8), (100_000, 8), (1_000, 3), (10, 0)])
def test_the_shorter_a_process_lives_the_fewer_programs_pay(horizon: int | None, entries: int) -> None:
    seen = counts({16 * number: 100 for number in range(1, 33)})
    dear = costs(build_s=20.0, dynamic=None)
    choice = choose(seen, dear, ShapeRules(horizon_calls=horizon, margin=0.0))
    assert choice.chosen.entries == entries
    if horizon is None:
        assert choice.chosen.total_s == choice.chosen.calls_s
    if not entries:
        assert choice.because.startswith("no policy is forecast to be faster than eager")


def test_files_that_a_start_reads_count_as_well() -> None:
    large = ShapeCosts(
        eager=program(LINE), static=program({1: 1e-3, 512: 200e-3}, size_bytes=4_000_000_000), may_pad=True
    )
    [eager, *others] = choose(TEXTS, large, ShapeRules(horizon_calls=1303)).forecasts
    assert others[0].start_s == pytest.approx(4.0 * others[0].entries)
    assert eager.start_s == 0.0


def test_one_size_needs_one_program() -> None:
    choice = choose(counts({37: 9}), costs())
    assert choice.chosen.entries == 1
    assert choice.chosen.buckets[0].sizes == (37,)
    assert choice.chosen.buckets[0].padded == 0


def test_the_largest_declared_size_is_served_though_nobody_asked_for_it_yet() -> None:
    choice = choose(counts({10: 100}), costs(dynamic=None), ShapeRules(largest=(512,), max_entries=2))
    assert [one.sizes for one in of(choice, ShapePolicy.BUCKETS).buckets] == [(10,), (512,)]
    assert choice.distinct == 1


def test_an_engine_without_static_programs_has_the_dynamic_one() -> None:
    choice = choose(TEXTS, costs(static=None))
    assert choice.chosen.policy is ShapePolicy.DYNAMIC
    assert [one.policy for one in choice.forecasts] == [ShapePolicy.EAGER, ShapePolicy.DYNAMIC]
    slow = choose(TEXTS, costs(static=None, dynamic=1.2))
    assert slow.chosen.policy is ShapePolicy.EAGER


def test_batch_and_length() -> None:
    line = {(b, t): 1e-3 * b * t for b in (1, 8) for t in (1, 512)}
    two = ShapeCosts(eager=program(line), static=program({place: s / 2 for place, s in line.items()}), may_pad=True)
    seen = counts({(1, 512): 50, (8, 16): 500, (8, 20): 5, (2, 100): 50})
    choice = choose(seen, two, ShapeRules(largest=(8, 512), max_entries=5))
    assert choice.chosen.policy is ShapePolicy.BUCKETS
    assert (8, 512) in {one.sizes for one in choice.chosen.buckets}
    assert choice.chosen.entries <= 5
    assert choice.speedup > 1.8


@pytest.mark.parametrize(
    ("seen", "largest", "why"),
    [
        ([], None, "no calls"),
        (counts({3: 0}), None, "no calls"),
        ([SizeDemand(sizes=(-1,), count=1)], None, "below zero"),
        ([SizeDemand(sizes=(1,), count=-1)], None, "below zero"),
        (counts({3: 1, (1, 2): 1}), None, "number of dimensions"),
        (counts({600: 1}), (512,), "widen the range"),
    ],
)
def test_bad_traffic_is_refused(seen: list[SizeDemand], largest: tuple[int, ...] | None, why: str) -> None:
    with pytest.raises(InputError, match=why):
        choose(seen, costs(), ShapeRules(largest=largest))


def test_counts_of_one_size_are_added() -> None:
    assert merged([*counts({3: 1}), *counts({3: 2, 1: 1})]) == counts({1: 1, 3: 3})


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.integers(1, 512), st.integers(1, 1000), min_size=1, max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_more_entries_never_make_the_forecast_worse(seen: dict[int, int], entries: int, may_pad: bool) -> None:
    fewer, more = (
        choose(counts(seen), costs(may_pad=may_pad), ShapeRules(max_entries=number, margin=0.0))
        for number in (entries, entries + 1)
    )
    assert more.chosen.total_s <= fewer.chosen.total_s * (1 + 1e-9)
    assert fewer.chosen.entries <= entries
    assert msgspec.json.decode(msgspec.json.encode(more), type=ShapeChoice) == more
