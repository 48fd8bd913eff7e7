"""Who is not beaten in everything at once? In: the rows of a run. Out: the ids on the Pareto front, in their order.

Three figures count, the less the better: latency (the p50 against eager's in the same rounds, so that figures of
different moments can be set side by side), start (`warm_s` where it is known, else `cold_s`), and peak memory. A row
beats another that is in none of them better and in one of them worse. Only ok candidates and eager take part, and only
with all three figures. Pure. Not covered: noise: who is chosen is decided by races and their intervals (verdict/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from compilot.records import State
from compilot.report.data import Row


class Point(NamedTuple):
    """What counts of one candidate; the less the better."""

    latency: float  # relative to eager's
    start_s: float
    memory_mib: float


def pareto_front(rows: Iterable[Row]) -> tuple[str, ...]:
    """Ids of the rows that no other one beats."""
    return front({row["id"]: point for row in rows if (point := point_of(row)) is not None})


def point_of(row: Row) -> Point | None:
    """The figures of a row; None: it is not ok, or one of them is not known."""
    own, eager, memory = row["p50_ms"], row["eager_p50_ms"], row["peak_rss_mib"]
    start = row["cold_s"] if row["warm_s"] is None else row["warm_s"]
    if row["state"] != State.OK or own is None or not eager or start is None or memory is None:
        return None
    return Point(own / eager, start, memory)


def front(points: Mapping[str, Point]) -> tuple[str, ...]:
    """Those that no other one beats, in their order."""
    return tuple(name for name, own in points.items() if not any(beats(other, own) for other in points.values()))


def beats(one: Point, other: Point) -> bool:
    """Whether it is as good in everything and better in something."""
    return one != other and all(ours <= theirs for ours, theirs in zip(one, other, strict=True))
