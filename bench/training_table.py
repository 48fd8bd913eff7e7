"""The table of bench/training.py: the plan's step over eager's and over the best by hand, with intervals. Pure.

In: the journal. Out: lines. Ratios are those of compilot's own races: log ratios per round, the median of each set of
processes, the 95 % interval by resampling sets, blocks and rounds. A plan is shown below a limit where the whole
interval lies below it. The best by hand is the arm that the plan beats by least, picked from the same rounds: that is
the hardest reading for the plan. A model that falls short, or that has not been raced, shows every candidate tried.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from compilot.measure.stats import hierarchical_bootstrap
from engines_mean import mean_over
from training_arm import BY_HAND
from training_journal import Journal, Raced

NEVER_BELOW, OVER_HAND, OVER_EAGER = 0.98, 1.03, 1.25  # what the plan has to reach
HEAD = (
    "| model | eager ms | plan ms | over eager (95 %) | best by hand | over it (95 %) | "
    "peak MiB: eager, best by hand, plan | first step s: best by hand, plan | chosen |"
)


class Ratio(NamedTuple):
    """How many times as fast the plan's step is."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f}-{self.high:.3f})"


def logs(sets: Sequence[Raced], other: str) -> list[list[float]]:
    """By set and round: the logarithm of the other arm's time over the plan's."""
    return [[math.log(b / a) for a, b in zip(one.step_s["plan"], one.step_s[other], strict=True)] for one in sets]


def over(sets: Sequence[Raced], other: str) -> Ratio:
    """The plan against one arm; without enough rounds for an interval nothing is shown."""
    own = logs(sets, other)
    found = hierarchical_bootstrap(own)
    if found is None:
        return Ratio(math.exp(statistics.mean(statistics.median(pairs) for pairs in own)), 0.0, math.inf)
    return Ratio(math.exp(found.estimate), math.exp(found.low), math.exp(found.high))


def best_by_hand(sets: Sequence[Raced]) -> str:
    """The arm that the plan beats by least."""
    return min(BY_HAND, key=lambda arm: over(sets, arm).estimate)


def table(journal: Journal, models: Sequence[str]) -> list[str]:
    """A line for each model, the means, and who falls short."""
    raced = {model: sets for model in models if (sets := journal.raced(model))}
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    lines += [_line(journal, model, sets) for model, sets in raced.items()]
    if raced:
        lines += [
            _mean("eager", [logs(sets, "eager") for sets in raced.values()], OVER_EAGER),
            _mean("the best by hand", [logs(sets, best_by_hand(sets)) for sets in raced.values()], OVER_HAND),
        ]
    below = [model for model, sets in raced.items() if over(sets, best_by_hand(sets)).high < NEVER_BELOW]
    lines.append(f"shown below {NEVER_BELOW} of the best by hand: {', '.join(below) or 'none'}; wanted: none")
    short = [model for model, sets in raced.items() if over(sets, best_by_hand(sets)).estimate < OVER_HAND]
    for model in short:
        tuned = journal.tuned(model)
        lines.append(f"{model} is below {OVER_HAND} of the best by hand; tried:")
        lines += [f"  {name}: {what}" for name, what in (tuned.tried if tuned is not None else {}).items()]
    return lines


def _line(journal: Journal, model: str, sets: Sequence[Raced]) -> str:
    hand, tuned = best_by_hand(sets), journal.tuned(model)
    arms = ("eager", hand, "plan")
    ms = {arm: 1e3 * statistics.median(v for one in sets for v in one.step_s[arm]) for arm in ("eager", "plan")}
    peaks = ", ".join(f"{max(one.peak_rss_bytes[arm] for one in sets) / 2**20:.0f}" for arm in arms)
    firsts = ", ".join(f"{statistics.median(one.first_s[arm] for one in sets):.1f}" for arm in arms[1:])
    return (
        f"| {model} | {ms['eager']:.1f} | {ms['plan']:.1f} | {over(sets, 'eager')} | {hand} | {over(sets, hand)} | "
        f"{peaks} | {firsts} | {tuned.chosen.splitlines()[0] if tuned is not None else ''} |"
    )


def _mean(other: str, logs: Sequence[list[list[float]]], wanted: float) -> str:
    mean = mean_over(logs)
    if mean is None:
        return f"geometric mean over {other}: too few rounds"
    met = "met" if mean.ratio >= wanted else "not met"
    return (
        f"geometric mean over {other}: {mean.ratio:.3f} ({mean.low:.3f}-{mean.high:.3f}), {mean.models} models; "
        f"wanted {wanted}: {met}"
    )
