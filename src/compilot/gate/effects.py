"""How much more the head needs: one `Effect` per noisy metric of a race. In: sets of processes. Out: effects. Pure.

Latency is the paired log ratio of the races with its hierarchical bootstrap, as everywhere; the margin is the larger of
what was asked for and what equal programs of this race differed by. Everything that a process says once is Student's t.
How narrow an interval has to be is fixed before its race, by what was asked for or by an earlier race.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from compilot.gate.metrics import FIGURES, LATENCY, OTHER_DAY, RULE_OUT, Figure
from compilot.gate.races import OneSet
from compilot.gate.report_records import Baseline
from compilot.gate.sides import BASE, HEAD
from compilot.gate.small_samples import LogEffect, paired, two_race_share, unpaired
from compilot.measure.stats import bootstrap_draws, log_ratios, mde
from compilot.records import Outcome, Race
from compilot.trials.protocol import ArmFacts
from compilot.verdict.compare import compare_columns

BASE_COLUMN, HEAD_COLUMN = 2, 3  # of a set's samples; the two before are the base against itself
STORED_FLOOR = 0.02  # the least spread of stored latencies that is believed
MANY = 200  # degrees of freedom of a bootstrap's interval: as a normal one
LEAST_WIDTH, MOST_WIDTH = 0.015, 0.08  # of a second race: narrower takes too long, wider is soon reached


class Key(NamedTuple):
    """Which metric of which arm."""

    metric: str
    arm: str


class Effect(NamedTuple):
    """The head against the base; relative, above 0: the head needs more."""

    base: float
    head: float
    unit: str
    change: float
    low: float
    high: float
    margin: float
    rule_out: float
    mde: float  # smallest change that so much data shows, four times out of five
    seen: float  # the same of a whole check, of which this is the first race: a second one has to show it, too
    p: float  # of a change no larger than the margin
    is_time: bool = True
    size: str = ""  # how much was measured

    @property
    def exceeds(self) -> bool:
        """Whether the whole interval is beyond the margin."""
        return self.low > self.margin

    @property
    def is_large(self) -> bool:
        """Whether the change itself is beyond the margin, and beyond what so much data can show."""
        return self.change > max(self.margin, self.mde)

    @property
    def half_width(self) -> float:
        """Of the interval, as a logarithm."""
        return (math.log1p(self.high) - math.log1p(self.low)) / 2


Widths = Callable[[Key, Effect], float]  # the half-width that is wanted, as a logarithm


def is_precise(effects: Mapping[Key, Effect], wanted: Widths) -> bool:
    """Whether a race knows enough: every interval is narrow, wherever it lies."""
    return bool(effects) and all(effect.half_width <= wanted(key, effect) for key, effect in effects.items())


def first_widths(half_width: float) -> Widths:
    """Of a first race; half_width: of a latency, relative. Of the others a change within the margin can pass."""
    return lambda key, effect: math.log1p(half_width) if key.metric == LATENCY else _passing(effect)


def second_widths(first: Mapping[Key, Effect], doubtful: Sequence[Key]) -> dict[Key, float]:
    """Of a second race: half of what the first one found beyond the margin, so that the same change is shown again.

    The second race has data of its own, so this is fixed before any of them.
    """

    def width(key: Key, effect: Effect) -> float:
        most = MOST_WIDTH if key.metric == LATENCY else max(MOST_WIDTH, _passing(effect))
        return min(max((math.log1p(effect.change) - math.log1p(effect.margin)) / 2, LEAST_WIDTH), most)

    return {key: width(key, first[key]) for key in doubtful}


def _passing(effect: Effect) -> float:
    """The half-width with which a change within the margin would pass."""
    return math.log1p(effect.rule_out) - math.log1p(effect.margin)


def effects_of(sets: Sequence[OneSet], arms: Sequence[str], margin: float, rule_out: float) -> dict[Key, Effect]:
    """Every noisy metric that these sets have for both sides."""
    found: dict[Key, Effect] = {}
    for arm in arms:
        if (latency := _latency(sets, arm, margin, rule_out)) is not None:
            found[Key(LATENCY, arm)] = latency
        for figure in FIGURES:
            base, head = (_figures(sets, side, arm, figure) for side in (BASE, HEAD))
            effect = paired(base, head, margin=figure.margin, floor=figure.floor)
            if effect is not None:
                found[Key(figure.name, arm)] = _of_figure(effect, figure, base, head)
    return found


def effects_since(
    baseline: Baseline,
    sets: Sequence[OneSet],
    arms: Sequence[str],
    margin: float,
    rule_out: float = RULE_OUT,
    *,
    times: bool,
    costs: bool = True,
) -> dict[Key, Effect]:
    """The same against stored figures; times: they are of this very machine, costs: of such a processor and torch.

    Only processes that found no earlier build count: a baseline has more of the others than a check.
    """
    found: dict[Key, Effect] = {}
    for arm in arms:
        stored = baseline.facts.get(arm, ())
        if times and (effect := _stored_latency(baseline, sets, arm, margin, rule_out)) is not None:
            found[Key(LATENCY, arm)] = effect
        for figure in (one._replace(cold=True) for one in FIGURES):
            if not (times if figure.is_time else costs):
                continue
            base, head = _read(stored, figure), _figures(sets, HEAD, arm, figure)
            about = figure._replace(margin=figure.margin + OTHER_DAY) if figure.is_time else figure
            if (got := unpaired(base, head, margin=about.margin, floor=about.floor)) is not None:
                found[Key(figure.name, arm)] = _of_figure(got, about, base, head)
    return found


def race_of(sets: Sequence[OneSet], arm: str) -> Race | None:
    """The samples of one arm as a race; None: no set has any."""
    samples = tuple(one.samples[arm] for one in sets if arm in one.samples)
    if not samples:
        return None
    with_aa = all(arm in one.with_aa for one in sets if arm in one.samples)
    load = next((one.load for one in sets if one.load), "")
    return Race(arms=("base", "base", f"base {arm}", f"head {arm}"), with_aa=with_aa, processes=samples, load=load)


def set_medians(sets: Sequence[OneSet], arm: str, column: int) -> list[float]:
    """The usual seconds per call of each set."""
    found = [[row[column] for row in one.samples[arm].rounds] for one in sets if arm in one.samples]
    return [statistics.median(rows) for rows in found if rows]


def _latency(sets: Sequence[OneSet], arm: str, margin: float, rule_out: float) -> Effect | None:
    race = race_of(sets, arm)
    if race is None:
        return None
    seen = compare_columns(race, HEAD_COLUMN, BASE_COLUMN)
    draws = bootstrap_draws(log_ratios(race, HEAD_COLUMN, BASE_COLUMN))
    if seen.outcome is Outcome.UNDECIDED or draws is None:
        return None
    least = max(margin, seen.margin)
    within = int(np.sum(-draws <= math.log1p(least)))  # the ratio of a race is base / head
    half = (math.log(seen.high) - math.log(seen.low)) / 2
    base, head = (statistics.median(set_medians(sets, arm, column)) for column in (BASE_COLUMN, HEAD_COLUMN))
    return Effect(
        *(base, head, "s", 1.0 / seen.ratio - 1.0, 1.0 / seen.high - 1.0, 1.0 / seen.low - 1.0),
        margin=least,
        rule_out=rule_out,
        mde=mde(half, least),
        seen=_seen(half, least, MANY),
        p=(within + 1) / (len(draws) + 1),
        size=f"{seen.processes} x {seen.pairs} pairs",
    )


def _stored_latency(
    baseline: Baseline, sets: Sequence[OneSet], arm: str, margin: float, rule_out: float
) -> Effect | None:
    base, head = list(baseline.call_s.get(arm, ())), set_medians(sets, arm, HEAD_COLUMN)
    least = margin + OTHER_DAY
    effect = unpaired(base, head, margin=least, floor=STORED_FLOOR)
    about = Figure(LATENCY, "s", lambda facts: None, least, rule_out + 2 * OTHER_DAY, STORED_FLOOR)
    return None if effect is None else _of_figure(effect, about, base, head)


def _figures(sets: Sequence[OneSet], side: str, arm: str, figure: Figure) -> list[float]:
    """One for each set in which both sides have it."""
    names = {f"{BASE} {arm}", f"{HEAD} {arm}"}
    alone = not any(f"{BASE} {arm}" in one.facts for one in sets)
    both = [one for one in sets if alone or names <= one.facts.keys()]
    return _read([one.facts[f"{side} {arm}"] for one in both if f"{side} {arm}" in one.facts], figure)


def _read(facts: Sequence[ArmFacts], figure: Figure) -> list[float]:
    used = [one for one in facts if one.cold_cache or not figure.cold]
    used = [one for one in used if one.kernels is not None or not figure.compiled]
    return [value for one in used if (value := figure.read(one)) is not None]


def _of_figure(effect: LogEffect, figure: Figure, base: Sequence[float], head: Sequence[float]) -> Effect:
    change, low, high = (math.expm1(value) for value in (effect.estimate, effect.low, effect.high))
    half = (effect.high - effect.low) / 2
    return Effect(
        *(statistics.median(base), statistics.median(head), figure.unit, change, low, high),
        margin=figure.margin,
        rule_out=figure.rule_out,
        mde=mde(half, figure.margin),
        seen=_seen(half, figure.margin, effect.freedom),
        p=effect.p,
        is_time=figure.is_time,
        size=f"{len(head)} processes",
    )


def _seen(half_width: float, margin: float, freedom: int) -> float:
    """The smallest change that would have been red: about 1.9 half-widths beyond the margin, more with few figures."""
    return margin + (1.0 + margin) * math.expm1(two_race_share(freedom) * half_width)
