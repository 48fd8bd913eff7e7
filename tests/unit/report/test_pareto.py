"""The Pareto front: who is not beaten in latency, start and memory at once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from compilot.report import read_run, results_of
from compilot.report.data import Row
from compilot.report.pareto import Point, beats, front, pareto_front, point_of
from compilot.report.terminal import summary

FIGURE = st.integers(0, 4).map(float)  # few values: ties and equal points are common
POINTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.builds(Point, FIGURE, FIGURE, FIGURE))
LINE = "no other candidate is better in latency, start and memory at once: "


def dominated(own: Point, points: dict[str, Point]) -> bool:
    """The definition, spelled out: another one is nowhere worse and somewhere better."""
    return any(
        other.latency <= own.latency
        and other.start_s <= own.start_s
        and other.memory_mib <= own.memory_mib
        and (other.latency < own.latency or other.start_s < own.start_s or other.memory_mib < own.memory_mib)
        for other in points.values()
    )


@given(POINTS)
def test_no_member_is_dominated_and_everybody_else_is(points: dict[str, Point]) -> None:
    members = front(points)
    assert [name for name in members if dominated(points[name], points)] == []
    assert [name for name in points if name not in members and not dominated(points[name], points)] == []


@given(POINTS)
def test_everybody_else_is_beaten_by_a_member(points: dict[str, Point]) -> None:
    members = front(points)
    assert bool(members) == bool(points)
    for name in points.keys() - set(members):
        assert any(beats(points[member], points[name]) for member in members)


@given(POINTS)
def test_the_best_in_each_figure_is_matched_by_a_member(points: dict[str, Point]) -> None:
    members = [points[name] for name in front(points)]
    for figure in range(3 if points else 0):
        assert min(point[figure] for point in points.values()) == min(point[figure] for point in members)


def test_equals_stand_side_by_side() -> None:
    same = Point(1.0, 2.0, 3.0)
    assert front({"a": same, "b": same, "c": Point(1.0, 2.0, 4.0)}) == ("a", "b")


def row(**figures: Any) -> Row:
    known: Any = {
        "id": "x",
        "candidate": "x",
        "state": "ok",
        "p50_ms": 5.0,
        "eager_p50_ms": 10.0,
        "cold_s": 8.0,
        "warm_s": None,
        "peak_rss_mib": 100.0,
    }
    return {**known, **figures}


def test_the_start_is_the_warm_one_where_it_is_known() -> None:
    assert point_of(row()) == Point(0.5, 8.0, 100.0)
    assert point_of(row(warm_s=0.25)) == Point(0.5, 0.25, 100.0)


@pytest.mark.parametrize(
    "without", [{"state": "wrong"}, {"p50_ms": None}, {"eager_p50_ms": None}, {"cold_s": None}, {"peak_rss_mib": None}]
)
def test_who_failed_or_lacks_a_figure_takes_no_part(without: dict[str, Any]) -> None:
    assert point_of(row(**without)) is None
    assert pareto_front([row(**without), row(id="y", p50_ms=9.0)]) == ("y",)


def test_latency_is_against_eager_in_the_same_rounds() -> None:
    """The second was timed when the machine was half as fast: it is the quicker one all the same."""
    early, late = row(id="early", p50_ms=6.0), row(id="late", p50_ms=8.0, eager_p50_ms=20.0)
    assert pareto_front([early, late]) == ("late",)


def test_the_json_has_the_ids_and_the_terminal_a_mark_and_a_line(run_dir: Path, small_run: Any) -> None:
    by_name = {row["candidate"]: row["id"] for row in read_run(run_dir).rows}
    members = (by_name["eager"], by_name["inductor freezing"])  # plain inductor is slower, and starts later
    assert results_of(run_dir).pareto == members
    console = Console(file=io.StringIO(), width=80)
    console.print(summary(read_run(run_dir), small_run.plan, width=80))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert next(line[2:7] for line in text.splitlines() if line.startswith("* ")) == "eager"
    assert f"* {LINE}eager; inductor freezing" in " ".join(text.split())
    assert "* inductor " not in text  # the beaten one has no mark


def test_eager_alone_is_compared_with_nobody(small_run: Any, tmp_path: Path) -> None:
    small_run.trials = small_run.trials[:1]
    folder = small_run.write(tmp_path / "alone", finished=False)
    console = Console(file=io.StringIO(), width=100)
    console.print(summary(read_run(folder), None, width=100))
    assert LINE not in " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_preset_and_limits_are_in_the_json(small_run: Any, tmp_path: Path) -> None:
    small_run.header = msgspec.structs.replace(
        small_run.header, preset="research", max_compile_s=30.0, max_error=1e-4, max_memory_bytes=2**30
    )
    found = results_of(small_run.write(tmp_path / "run"))
    assert found.preset == "research"
    limits = found.limits
    assert (limits.max_memory_bytes, limits.max_compile_s, limits.max_error) == (2**30, 30.0, 1e-4)
