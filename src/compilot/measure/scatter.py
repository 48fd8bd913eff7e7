"""How much do one arm's own calls vary? In: single calls. Out: its noise against itself, and what that could show.

The calls are put together to batches as long as a race's, and every other batch is set against the one after it: the
same code at nearly the same moment, as in a race of eager against itself. Covered: an early look, from samples that
are there anyway. Not covered: differences between processes, which only a race with several of them sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compilot.measure.bootstrap import hierarchical_bootstrap, log_ratios
from compilot.measure.noise import aa_noise, margin, mde
from compilot.measure.steady import BATCH_TARGET_S
from compilot.records import ProcessSamples, Race

FEWEST_PAIRS = 10  # with fewer, a single slow batch would be the answer


class Scatter(NamedTuple):
    """Of one arm against itself."""

    noise: float  # as `aa_noise`
    smallest: float  # the least ratio that such samples could show


def scatter(call_s: Sequence[float]) -> Scatter | None:
    """None: too few calls, or too short ones, to say."""
    batches = _batches(call_s)
    pairs = tuple(zip(batches[0::2], batches[1::2], strict=False))
    if len(pairs) < FEWEST_PAIRS:
        return None
    race = Race(arms=("own", "own"), with_aa=True, processes=(ProcessSamples(rounds=pairs),))
    noise, interval = aa_noise(race), hierarchical_bootstrap(log_ratios(race, 1, 0))
    if noise is None or interval is None:
        return None
    return Scatter(noise, 1.0 + mde(interval.half_width, margin(race)))


def _batches(call_s: Sequence[float]) -> list[float]:
    """Seconds per call of consecutive calls that take a batch's time together; an incomplete last one is left out."""
    found: list[float] = []
    total, calls = 0.0, 0
    for call in call_s:
        total, calls = total + call, calls + 1
        if total >= BATCH_TARGET_S:
            found.append(total / calls)
            total, calls = 0.0, 0
    return found
