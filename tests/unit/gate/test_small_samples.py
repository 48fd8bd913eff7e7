"""Student's t and Holm's correction against known values."""

from __future__ import annotations

import math

import pytest

from compilot.gate.small_samples import holm, paired, t_cdf, t_quantile, two_race_share, unpaired


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-5)
    assert t_cdf(-quantile, freedom) == pytest.approx(0.025, rel=1e-4)
    assert t_cdf(0.0, freedom) == pytest.approx(0.5)


def test_a_clear_change_is_no_chance() -> None:
    seen = paired([1.0, 1.02, 0.99], [2.0, 2.05, 1.97], margin=0.2, floor=0.02)
    assert seen is not None
    assert seen.estimate == pytest.approx(math.log(2.0), abs=0.02)
    assert seen.low > math.log(1.2)
    assert seen.p < 0.001


def test_agreement_by_luck_is_not_believed() -> None:
    seen = paired([1.0, 1.0, 1.0], [1.05, 1.05, 1.05], margin=0.0, floor=0.05)
    assert seen is not None
    assert seen.low < 0.0 < seen.high


def test_too_few_or_impossible_figures_say_nothing() -> None:
    assert paired([1.0], [2.0], margin=0.1, floor=0.1) is None
    assert paired([1.0, 0.0], [2.0, 2.0], margin=0.1, floor=0.1) is None
    assert unpaired([1.0, 1.0], [2.0], margin=0.1, floor=0.1) is None


def test_other_days_need_no_equal_numbers() -> None:
    seen = unpaired([1.0, 1.1, 0.9, 1.0], [2.0, 2.1], margin=0.05, floor=0.02)
    assert seen is not None
    assert seen.low > math.log(1.3)


def test_few_figures_need_more_to_be_red_in_two_races() -> None:
    assert two_race_share(200) == pytest.approx(1.9, abs=0.03)
    assert 1.9 < two_race_share(4) < two_race_share(2) < 3.0


def test_holm_is_stricter_than_one_test_and_less_than_all() -> None:
    assert holm([0.01, 0.04]) == [True, True]
    assert holm([0.03, 0.04]) == [False, False]
    assert holm([0.001, 0.2, 0.03]) == [True, False, False]
    assert holm([]) == []
