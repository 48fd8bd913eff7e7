"""Racing: interleaved, paired rounds over live arms.

In: arms that can time one batch. Out: samples, one row per round. Covered: only one arm runs at a time and the previous
one is idle first; random order within each round, the first rounds discarded; looks at fixed numbers of rounds only
(docs/measuring.md). Not covered: how an arm runs (trials/), what the samples mean (stats, verdict/).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from compilot.records import ProcessSamples

FEWEST_ROUNDS = 8  # what a race is worth finishing for, however little time is left
DISCARDED_ROUNDS = 2  # the first batches after a pause run on cold caches and clocks


class Arm(Protocol):
    """One live process that can time a batch of its own callable."""

    def time_batch(self) -> float:
        """Seconds per call over one calibrated batch."""

    def settle(self) -> bool:
        """Wait until the arm's process tree is idle; False: it was still busy at the limit."""


Stop = Callable[[Sequence[tuple[float, ...]]], bool]


def race(
    arms: Sequence[Arm],
    *,
    looks: Sequence[int],
    stop: Stop,
    seed: int,
    on_round: Callable[[int], None] = lambda done: None,
    time_is_up: Callable[[], bool] = lambda: False,
    discard: int = DISCARDED_ROUNDS,
    fewest: int = FEWEST_ROUNDS,
) -> ProcessSamples:
    """Time every arm once per round, in random order, until a look says stop, the last look, or time is up."""
    order = random.Random(seed)
    rounds: list[tuple[float, ...]] = []
    timeouts = 0
    for number in range(discard + max(looks)):
        row, late = [0.0] * len(arms), 0
        for index in order.sample(range(len(arms)), len(arms)):  # the row keeps the arms' own order
            row[index] = arms[index].time_batch()
            late += not arms[index].settle()
        if number < discard:
            continue
        rounds.append(tuple(row))
        timeouts += late
        on_round(len(rounds))
        if (len(rounds) in looks and stop(rounds)) or (len(rounds) >= fewest and time_is_up()):
            break
    return ProcessSamples(rounds=tuple(rounds), settle_timeouts=timeouts)
