"""How large batches should be. In: seconds of a call at several batch sizes. Out: a largest size worth having, splits.

`recommended`: from the smallest size on, as long as the next one brings at least 5 % more samples per second.
`split`: the cheapest way to answer a batch in parts, a knapsack over the measured sizes (the last part may be padded).
Not covered: how long a server should wait for a batch to fill, which depends on its traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from compilot.errors import InputError
from compilot.records import BatchAdvice, BatchPoint
from compilot.verdict.words import percent, times

WORTH = 0.05  # more samples per second, for a batch of the next size
SPLIT_MARGIN = 0.05  # a batch is split only where the parts are this much faster: each part costs a call of its own


class Split(NamedTuple):
    """A batch in parts."""

    parts: tuple[int, ...]  # largest first
    call_s: float  # of all parts


def split(batch: int, call_s: Mapping[int, float], part_s: float = 0.0) -> Split:
    """The cheapest parts, of measured sizes, that together hold the batch; part_s: what each part costs besides."""
    if batch < 1 or not call_s or min(call_s) < 1:
        raise InputError("a batch to split needs at least one sample, and measured sizes of at least one.")
    best: list[tuple[float, int]] = [(0.0, 0)]  # for each number of samples: seconds, and the last part
    for number in range(1, batch + 1):
        best.append(min((best[max(0, number - size)][0] + seconds + part_s, size) for size, seconds in call_s.items()))
    parts, left = [], batch
    while left > 0:
        parts.append(best[left][1])
        left -= best[left][1]
    return Split(tuple(sorted(parts, reverse=True)), best[batch][0])


def recommended(call_s: Mapping[int, float], worth: float = WORTH) -> tuple[int, str]:
    """The largest batch worth having, and why; call_s: by batch size."""
    if not call_s or not all(math.isfinite(s) and s > 0 for s in call_s.values()):
        raise InputError("batch sizes need times above zero.")
    for small, large in pairwise(sorted(call_s)):
        gain = (large / call_s[large]) / (small / call_s[small]) - 1.0
        if gain < worth:
            change = f"{percent(gain)} more" if gain >= 0 else f"{percent(-gain)} fewer"
            return small, f"a batch of {large} brings {change} samples/s than one of {small}"
    largest = max(call_s)
    if len(call_s) == 1:
        return largest, "no other size was measured"
    gain = (largest / call_s[largest]) / (min(call_s) / call_s[min(call_s)])
    return (
        largest,
        f"samples/s still grow at {largest}, {times(gain)} those of {min(call_s)}: larger ones may pay as well",
    )


def advice(points: Sequence[BatchPoint]) -> tuple[BatchAdvice, ...]:
    """For each way to run the model that has figures, in the order of the points."""
    found: dict[str, list[BatchPoint]] = {}
    for point in points:
        if point.call_s is not None:
            found.setdefault(point.candidate_id, []).append(point)
    return tuple(_advised(own) for own in found.values())


def _advised(points: Sequence[BatchPoint]) -> BatchAdvice:
    call_s = {point.batch: point.call_s for point in points if point.call_s is not None}
    size, because = recommended(call_s)
    splits = {}
    for batch, whole_s in sorted(call_s.items()):
        parts = split(batch, call_s)
        if len(parts.parts) > 1 and parts.call_s < whole_s * (1.0 - SPLIT_MARGIN):
            splits[str(batch)] = parts.parts
    return BatchAdvice(
        candidate=points[0].candidate,
        candidate_id=points[0].candidate_id,
        max_batch_size=size,
        samples_per_s=size / call_s[size],
        because=because,
        splits=splits,
    )
