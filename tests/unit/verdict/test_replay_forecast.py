"""What a replay is expected to show: the first program that takes a call serves it, as in the plan."""

from __future__ import annotations

import pytest

from compilot.records import CostPoint, ProgramCost, ShapeCosts
from compilot.verdict.replay_forecast import Taker, forecast_of


def cost(times: float) -> ProgramCost:
    return ProgramCost(points=tuple(CostPoint(sizes=(size,), call_s=times * size) for size in (1, 100)))


COSTS = ShapeCosts(eager=cost(10.0), static=cost(1.0), dynamic=cost(4.0), pad_s=2.0, may_pad=True)


@pytest.mark.parametrize(
    ("takers", "sizes", "seconds"),
    [
        ([Taker((20,), (5,), (20,))], 20, 20.0),
        ([Taker((20,), (5,), (20,))], 7, 22.0),  # padded
        ([Taker((20,), (5,), (20,))], 21, 210.0),  # eager's
        ([Taker((20,), (5,), (20,)), Taker(None, (1,), (100,))], 4, 16.0),
        ([Taker((20,), (1,), (20,)), Taker((3,), (1,), (3,))], 3, 22.0),  # the first one, though the other is cheaper
    ],
)
def test_a_call_costs_what_the_program_costs_that_the_plan_gives_it_to(
    takers: list[Taker], sizes: int, seconds: float
) -> None:
    assert forecast_of([(sizes,)], COSTS, takers) == pytest.approx(10.0 * sizes / seconds)


def test_it_is_a_ratio_of_totals_and_a_share_of_the_start_is_of_each_call() -> None:
    dynamic = [Taker(None, (1,), (100,))]
    assert forecast_of([(1,), (1,), (10,)], COSTS, dynamic) == pytest.approx(120.0 / 48.0)
    assert forecast_of([(1,), (1,), (10,)], COSTS, dynamic, more_s=4.0) == pytest.approx(120.0 / 60.0)
