"""Timing inside one process.

In: a unit of work. Out: batch and call samples, a warm-up story, a calibrated batch size. Covered: batches of at least
20 ms, warm-up until steady (docs/measuring.md). Not covered: pairing and order (racing.py), which is the parent's
business, because an arm must not know when it is being compared.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

from compilot._collector import no_collector
from compilot.measure.stats import calls_per_batch, is_steady
from compilot.records import WarmUp

MAX_WARM_UP_CALLS = 2_000_000  # a second of half-microsecond calls
FIRST_LOOK = 3
LOOK_GROWTH = 1.25  # the steadiness test reads every sample, so it is run as the samples grow by a quarter


class Steadied(NamedTuple):
    warm_up: WarmUp
    calls_per_batch: int
    call_s: float


def nothing() -> None:
    """Between calls that leave nothing behind."""


def settle_garbage() -> None:
    """Collect once and set aside what is left: modules are never garbage, and looking at them again costs."""
    gc.collect()
    gc.freeze()


def time_one(call: Callable[[], None]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def time_batch(call: Callable[[], None], calls: int) -> float:
    """Seconds per call over a batch."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def time_calls(
    call: Callable[[], None], calls: int, limit_s: float, between: Callable[[], None] = nothing
) -> tuple[float, ...]:
    """Single calls, fewer than asked for when the limit ends them; between: done after each, outside of its time."""
    samples: list[float] = []
    end = time.perf_counter() + limit_s
    with no_collector():
        while len(samples) < calls and time.perf_counter() < end:
            samples.append(time_one(call))
            between()
    return tuple(samples)


def warm_up(
    call: Callable[[], None], compiles: Callable[[], int], limit_s: float, between: Callable[[], None] = nothing
) -> Steadied:
    """Call until steady: no compile in the last calls, 3 calls and 1 s passed, no slope; then calibrate the batch."""
    samples: list[float] = []
    begin = time.perf_counter()
    seen, next_look = compiles(), FIRST_LOOK
    steady, slope = False, None
    while not steady and time.perf_counter() - begin < limit_s and len(samples) < MAX_WARM_UP_CALLS:
        samples.append(time_one(call))
        between()
        if compiles() != seen:
            seen, next_look = compiles(), FIRST_LOOK
            samples.clear()
        elif len(samples) >= next_look:
            steady, slope = is_steady(samples)
            next_look = max(next_look + 1, int(next_look * LOOK_GROWTH))
    wall = time.perf_counter() - begin
    settle_garbage()
    tail = samples[-max(1, len(samples) // 3) :] or [time_one(call)]
    story = WarmUp(calls=len(samples), wall_s=wall, steady=steady, slope=slope)
    return Steadied(story, calls_per_batch(tail), sorted(tail)[len(tail) // 2])
