"""The picture of one trace, its programs and its cost curves."""

from __future__ import annotations

from typing import Any

import pytest

from compilot.errors import InputError
from compilot.records import CostPoint, ProgramCost, ShapeCosts, SizeDemand
from compilot.report.shape_chart import CHOSEN, shape_chart
from compilot.verdict.policies import ShapeRules, choose


def program(share: float) -> ProgramCost:
    return ProgramCost(points=tuple(CostPoint(sizes=(size,), call_s=share * size * 1e-3) for size in (1, 100, 512)))


COSTS = ShapeCosts(eager=program(1.0), static=program(0.5), dynamic=program(0.7), may_pad=True)
SEEN = [SizeDemand(sizes=(size,), count=number) for size, number in ((10, 500), (37, 300), (40, 20), (480, 3))]


def shown(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_it_shows_every_size_with_what_serves_it_and_the_measured_points() -> None:
    choice = choose(SEEN, COSTS, ShapeRules(max_entries=3))
    chart = shape_chart(choice, SEEN, COSTS, "Net", "length")
    rows = shown(chart)
    bars = {row["size"]: row for row in rows if "calls" in row}
    assert {size: bar["calls"] for size, bar in bars.items()} == {10: 500, 37: 300, 40: 20, 480: 3}
    assert sum(bar["calls"] for bar in bars.values() if bar["served"] == "dynamic") == choice.chosen.dynamic_calls
    points = [row for row in rows if "call_ms" in row]
    assert [p["call_ms"] for p in points if p["program"] == "eager"] == pytest.approx([1.0, 100.0, 512.0])
    policy = [p for p in points if p["program"] == CHOSEN]
    total_ms = sum(p["call_ms"] * bars[p["size"]]["calls"] for p in policy)
    assert total_ms == pytest.approx(choice.chosen.calls_s * 1e3)
    assert [row["size"] for row in rows if row.keys() == {"size"}] == [one.sizes[0] for one in choice.chosen.buckets]
    assert chart.to_dict()["title"]["subtitle"].startswith(choice.chosen.policy.value)


def test_two_dimensions_are_refused() -> None:
    grid = ProgramCost(points=(CostPoint(sizes=(1, 1), call_s=1.0),))
    costs, seen = ShapeCosts(eager=grid), [SizeDemand(sizes=(1, 1), count=1)]
    with pytest.raises(InputError, match="one dimension"):
        shape_chart(choose(seen, costs), seen, costs, "Net")
