"""Traffic and costs that are made up."""

from __future__ import annotations

from collections.abc import Mapping

from compilot.records import CostPoint, ProgramCost, SizeDemand


def counts(seen: Mapping[int | tuple[int, ...], int]) -> list[SizeDemand]:
    """Counts of sizes: {37: 5}, or {(4, 37): 5}."""
    return [SizeDemand(sizes=sizes_of(key), count=number) for key, number in seen.items()]


def points(seconds: Mapping[int, float] | Mapping[tuple[int, ...], float]) -> tuple[CostPoint, ...]:
    return tuple(CostPoint(sizes=sizes_of(key), call_s=value) for key, value in seconds.items())


def program(
    seconds: Mapping[int, float] | Mapping[tuple[int, ...], float], *, build_s: float = 0.0, size_bytes: int = 0
) -> ProgramCost:
    return ProgramCost(points=points(seconds), build_s=build_s, size_bytes=size_bytes)


def sizes_of(key: int | tuple[int, ...]) -> tuple[int, ...]:
    return (key,) if isinstance(key, int) else key
