"""READ FIRST of this room: `check_sides`, the whole story of a check in one function.

In: who gives sets of processes, what is compared, options. Out: metrics with verdicts, and the samples behind them.
A first race; the arms that look worse in it are raced a second time with fresh builds; then every metric has its
verdict. A race ends when its time is up, or earlier when its intervals are as narrow as was wanted beforehand, wherever
they lie: nobody stops because something looks significant. A head that was killed has one more set of processes. Not
covered: where the sides come from (sides.py, worktree.py), the processes (races.py), the statistics (effects.py,
judging.py).
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.gate.answers import judge_numbers, why_not
from compilot.gate.baselines import unpacked, why_other_inputs
from compilot.gate.effects import (
    MOST_WIDTH,
    Effect,
    Key,
    effects_of,
    effects_since,
    first_widths,
    is_precise,
    second_widths,
)
from compilot.gate.judging import (
    Second,
    judge,
    judge_counts,
    judge_failures,
    not_measured,
    spare_other_torch,
    suspects,
    with_throughput,
)
from compilot.gate.metrics import FIGURES, LATENCY, LATENCY_MARGIN, NUMBERS, RULE_OUT, RUNS, Figure
from compilot.gate.races import Failure, OneSet, Races, Timing
from compilot.gate.report_records import Baseline, GateVerdict, MetricResult
from compilot.gate.sides import BASE, HEAD
from compilot.trials.protocol import ArmFacts, StateTaken

RACE_SHARE = 0.45  # of the budget: two races must fit, and what looks worse is always raced twice
LONG_BUDGET_S = 360.0
NO_SUCH_ARM = "the baseline has no such arm; make it again with 'compilot baseline'"
FEWEST_SETS = 3  # of a race, where its time allows: one process has a small bias for life
MOST_SETS, MORE_SETS = 5, 12  # when an interval is wide, more processes help and more pairs hardly
TIMING_SHARE = 0.5  # of a race: no further set where starting them all would leave less than this for pairs
COLD_SETS = 3  # of a race: later ones load what the first has built; what a build costs is known by then
MOST_ROUNDS, MORE_ROUNDS = 160, 320
FIRST_OVERHEAD_S = 15.0  # of a set, before one was seen: starting five processes, a build, warming up
LEAST_TIMING_S = 2.0  # of a set, however little time is left
LONG_BUILDS = 0.15  # of a race's time: builds that take longer are made once per race, not once per set


class CheckOptions(NamedTuple):
    """How a check is made."""

    budget_s: float = 180.0
    margin: float = LATENCY_MARGIN
    rule_out: float = RULE_OUT
    allowed: Collection[str] = ()  # metrics that may get worse
    processes: int | None = None  # sets of a race; None: as the budget allows

    @property
    def is_long(self) -> bool:
        """Whether there is time to show small changes."""
        return self.budget_s >= LONG_BUDGET_S

    @property
    def fewest_sets(self) -> int:
        """How many sets of processes a race has at least, where its time allows."""
        return self.processes or FEWEST_SETS

    @property
    def most_sets(self) -> int:
        """And at the most."""
        return self.processes or (MORE_SETS if self.is_long else MOST_SETS)

    @property
    def most_rounds(self) -> int:
        """How many rounds a set has at the most."""
        return MORE_ROUNDS if self.is_long else MOST_ROUNDS

    @property
    def half_width(self) -> float:
        """Of a latency's interval, relative: a race that is as precise as this may end."""
        return self.margin / 2 if self.is_long else self.margin


class Stored(NamedTuple):
    """A baseline to compare with, in place of a side."""

    baseline: Baseline
    no_times: str  # why its times say nothing here; "": they do
    folder: Path  # for its answers
    other_work: str = ""  # why its latencies are of something else; "": they are not
    no_costs: str = ""  # why its memory, kernels and files say nothing here; "": they do


class Checked(NamedTuple):
    """What a check found."""

    metrics: list[MetricResult]
    races: list[list[OneSet]]
    label: str


Clock = Callable[[], float]
Precise = Callable[[Sequence[OneSet]], bool]


def check_sides(
    races: Races,
    arms: Sequence[str],
    options: CheckOptions,
    *,
    stored: Stored | None = None,
    tell: Callable[[str], None] = lambda text: None,
    clock: Clock = time.monotonic,
) -> Checked:
    """Race base and head, race again what looks worse, and judge everything."""
    widths = first_widths(options.half_width)

    def precise(sets: Sequence[OneSet]) -> bool:
        return is_precise(_effects(sets, arms, options, stored), widths)

    first = run_race(races, 0, options, clock, precise)
    effects = _effects(first, arms, options, stored)
    doubtful = suspects(effects, options.allowed)
    second: list[OneSet] = []
    if doubtful:
        tell(f"{_names(doubtful)} looks worse: a second race with fresh builds has to agree")
        second = _second_race(races, effects, doubtful, options, stored, clock)
    both = [*first, *second]
    again = Second(*(_effects(sets, arms, options, stored) for sets in (second, both))) if second else None
    known, missing = _in_baseline(arms, stored)
    metrics = [
        *(not_measured(RUNS, arm, NO_SUCH_ARM) for arm in missing),
        *judge_failures(both, known),
        *_times(judge(effects, again, options.allowed), first, known, stored),
        *_counts(first, known, options, stored),
        *_numbers(first, known, options, stored),
    ]
    if _has_two_torches(first, stored):
        metrics = spare_other_torch(metrics)
    return Checked(metrics, [first, *([second] if second else [])], first[0].label)


def _in_baseline(arms: Sequence[str], stored: Stored | None) -> tuple[list[str], list[str]]:
    """The arms that there is something to compare with, and those that a stored baseline does not have."""
    known = [arm for arm in arms if stored is None or stored.baseline.facts.get(arm)]
    return known, [arm for arm in arms if arm not in known]


def _has_two_torches(sets: Sequence[OneSet], stored: Stored | None) -> bool:
    """Whether the sides run different versions of torch; what is stored knows that for itself."""
    return stored is None and len({facts.torch for one in sets for facts in one.facts.values()}) > 1


def _taken(sets: Sequence[OneSet]) -> StateTaken:
    """What the head did not have in common with the base, in the first set in which both were open."""
    return next((one.taken for one in sets if one.taken.parameters or one.taken.inputs), StateTaken())


def _second_race(
    races: Races,
    effects: Mapping[Key, Effect],
    doubtful: Sequence[Key],
    options: CheckOptions,
    stored: Stored | None,
    clock: Clock,
) -> list[OneSet]:
    """Only the arms under suspicion, as precise as the first race says that it needs to be."""
    widths = second_widths(effects, doubtful)
    arms = list(dict.fromkeys(key.arm for key in doubtful))

    def precise(sets: Sequence[OneSet]) -> bool:
        found = {key: one for key, one in _effects(sets, arms, options, stored).items() if key in widths}
        return len(found) == len(widths) and is_precise(found, lambda key, effect: widths[key])

    latencies = [width for key, width in widths.items() if key.metric == LATENCY]
    half_width = math.expm1(min(latencies, default=MOST_WIDTH))
    return run_race(races, 1, options, clock, precise, arms=arms, half_width=half_width)


def run_race(
    races: Races,
    number: int,
    options: CheckOptions,
    clock: Clock = time.monotonic,
    precise: Precise = lambda sets: False,
    *,
    arms: Collection[str] | None = None,
    half_width: float | None = None,
) -> list[OneSet]:
    """Sets of fresh processes within the race's share of the budget; at least two, unless the head does not run.

    precise: whether the intervals of these sets are narrow enough; half_width: when those of one set are. arms: which
    are run; None: all. A head that was killed in the last set has one more, whatever time is left.
    """
    begin, share, sets = clock(), RACE_SHARE * options.budget_s, list[OneSet]()
    overhead, wanted, reuse = FIRST_OVERHEAD_S, options.fewest_sets, False
    while len(sets) < wanted or was_killed(sets):
        left = share - (clock() - begin)
        if len(sets) >= 2 and left < overhead + LEAST_TIMING_S and not was_killed(sets):
            break
        for_s, started = max(LEAST_TIMING_S, left / max(1, wanted - len(sets)) - overhead), clock()
        timing = Timing(for_s, options.most_rounds, half_width or options.half_width)
        sets.append(races.one_set(number, len(sets), timing, reuse=reuse, arms=arms))
        overhead = max(0.0, clock() - started - sets[-1].timed_s)
        reuse = _has_long_builds(sets[0], share) or len(sets) >= COLD_SETS
        wanted = affordable_sets(overhead, share, options)
        if was_killed(sets):
            continue
        if not sets[-1].samples or (len(sets) >= options.fewest_sets and precise(sets)):
            break
    return sets


def was_killed(sets: Sequence[OneSet]) -> bool:
    """Whether the last set is the first in which an arm of the head, and not of the base, was killed."""

    def is_first(arm: str, failure: Failure) -> bool:
        side, _, label = arm.partition(" ")
        alone = side == HEAD and f"{BASE} {label}" not in sets[-1].failures
        return alone and failure.by_machine and not any(arm in one.failures for one in sets[:-1])

    return bool(sets) and any(is_first(arm, failure) for arm, failure in sets[-1].failures.items())


def _has_long_builds(first: OneSet, share_s: float) -> bool:
    """Builds are then made once per race, where the first set's are whole."""
    return first.builds_s > LONG_BUILDS * share_s and not first.failures


def affordable_sets(overhead_s: float, share_s: float, options: CheckOptions) -> int:
    """As many sets as leave most of a race for its pairs; what the pairs say has no part in it."""
    affordable = int((1.0 - TIMING_SHARE) * share_s / overhead_s) if overhead_s > 0.0 else options.most_sets
    return min(max(affordable, options.fewest_sets), options.most_sets)


def _effects(
    sets: Sequence[OneSet], arms: Sequence[str], options: CheckOptions, stored: Stored | None
) -> dict[Key, Effect]:
    if stored is not None:
        times, costs = not stored.no_times, not stored.no_costs
        since = effects_since(stored.baseline, sets, arms, options.margin, options.rule_out, times=times, costs=costs)
        return {k: one for k, one in since.items() if k.metric != LATENCY or not _why_other_work(sets, k.arm, stored)}
    found = effects_of(sets, arms, options.margin, options.rule_out)
    other = _taken(sets).inputs
    return {key: one for key, one in found.items() if not other or key.metric != LATENCY}


def _times(
    results: list[MetricResult], sets: Sequence[OneSet], arms: Sequence[str], stored: Stored | None
) -> list[MetricResult]:
    """The judged ones with throughput, and why there is none where there is none."""
    facts = _facts(sets, HEAD, arms)
    samples = {arm: n for arm in facts if facts[arm] and (n := facts[arm][0].samples_per_call)}
    found = with_throughput(results, samples)
    have = {one.arm for one in found if one.metric == LATENCY}
    for arm in arms:
        if arm in have or not facts.get(arm) or any(f"{s} {arm}" in sets[0].failures for s in (BASE, HEAD)):
            continue
        found.append(not_measured(LATENCY, arm, _why_no_latency(sets, arm, stored)))
    return [*found, *_missing_figures(found, facts, _base_facts(sets, arms, stored), stored)]


def _missing_figures(
    found: Sequence[MetricResult],
    head: Mapping[str, Sequence[ArmFacts]],
    base: Mapping[str, Sequence[ArmFacts]],
    stored: Stored | None,
) -> list[MetricResult]:
    """Figures that both sides could have, and why they have none."""
    have = {(one.metric, one.arm) for one in found}
    return [
        not_measured(figure.name, arm, why)
        for arm in head
        for figure in FIGURES
        if base.get(arm) and (figure.name, arm) not in have and (why := _why_no_figure(figure, head[arm], stored))
    ]


def _why_no_figure(figure: Figure, head: Sequence[ArmFacts], stored: Stored | None) -> str:
    """A sentence; "": there is nothing of the kind to measure."""
    if stored is not None and (stored.no_times if figure.is_time else stored.no_costs):
        return "" if figure.is_time else stored.no_costs  # the report has one note for all times
    if figure.compiled and head[0].kernels is None:
        return ""
    if figure.cold and len(head) > 1:
        text = f"a build takes {max(one.cold_s for one in head):.0f} s, so there were too few with empty caches"
        return f"{text}; give a larger budget"
    return "one process of a side shows no spread; give a larger budget, or more processes"


def _counts(
    sets: Sequence[OneSet], arms: Sequence[str], options: CheckOptions, stored: Stored | None
) -> list[MetricResult]:
    no_costs = stored.no_costs if stored is not None else ""
    return judge_counts(_base_facts(sets, arms, stored), _facts(sets, HEAD, arms), options.allowed, no_costs)


def _why_no_latency(sets: Sequence[OneSet], arm: str, stored: Stored | None) -> str:
    if stored is not None and (why := stored.no_times or _why_other_work(sets, arm, stored)):
        return why
    if other := _taken(sets).inputs:
        return f"the example inputs are others, so it is not the same work: {other}"
    return "too few pairs, or none, were timed; give a larger budget"


def _why_other_work(sets: Sequence[OneSet], arm: str, stored: Stored) -> str:
    head = next((f for one in sets if (f := one.facts.get(f"{HEAD} {arm}")) is not None), None)
    return stored.other_work or ("" if head is None else why_other_inputs(stored.baseline, arm, head))


def _facts(sets: Sequence[OneSet], side: str, arms: Sequence[str]) -> dict[str, list[ArmFacts]]:
    found = {arm: [f for one in sets if (f := one.facts.get(f"{side} {arm}")) is not None] for arm in arms}
    return {arm: facts for arm, facts in found.items() if facts}


def _base_facts(sets: Sequence[OneSet], arms: Sequence[str], stored: Stored | None) -> Mapping[str, Sequence[ArmFacts]]:
    return stored.baseline.facts if stored is not None else _facts(sets, BASE, arms)


def _numbers(
    sets: Sequence[OneSet], arms: Sequence[str], options: CheckOptions, stored: Stored | None
) -> list[MetricResult]:
    """Of the first set's answers; an arm that was ended before it could answer has none."""
    if not arms:  # the baseline has none of them
        return []
    first, later = sets[0], _facts(sets[1:], HEAD, arms)
    ended = [arm for arm in later if f"{HEAD} {arm}" in first.failures and f"{HEAD} {arm}" not in first.answers]
    without = [not_measured(NUMBERS, arm, "the first process ended before it had answered") for arm in ended]
    return [*_judged_numbers(first, arms, NUMBERS in options.allowed, stored), *without]


def _judged_numbers(first: OneSet, arms: Sequence[str], allowed: bool, stored: Stored | None) -> list[MetricResult]:
    if stored is None:
        return judge_numbers(first.answers, arms, why=why_not(first.taken, first.repeats), allowed=allowed)
    why = _why_no_stored_numbers(first, arms, stored.baseline)
    if why or stored.baseline.answers is None:
        return judge_numbers(first.answers, arms, why=why, allowed=allowed)
    with tempfile.TemporaryDirectory(dir=stored.folder) as folder:
        kept = unpacked(stored.baseline.answers, Path(folder) / "answers.pt")
        found = judge_numbers({**first.answers, f"{BASE} {arms[0]}": kept}, arms, allowed=allowed)
    return [one if one.arm == arms[0] else _without_own_answers(one) for one in found]


def _without_own_answers(one: MetricResult) -> MetricResult:
    """A baseline keeps its first arm's answers: whether another one was off as well when it was made is not known."""
    if not one.verdict.is_red:
        return one
    text = f"{one.because}; the baseline has no answers of {one.arm}, so that may be as it was"
    return msgspec.structs.replace(one, verdict=GateVerdict.INCONCLUSIVE, because=text)


def _why_no_stored_numbers(first: OneSet, arms: Sequence[str], baseline: Baseline) -> str:
    head, base = first.facts.get(f"{HEAD} {arms[0]}"), baseline.facts.get(arms[0], ())
    if head is None or not base:
        return NO_SUCH_ARM
    if head.parameters_sha256 != base[0].parameters_sha256:
        return "the model has other parameters than the baseline's"
    if baseline.answers is None:
        return "the baseline holds no answers: they are large, or the model does not repeat itself"
    if baseline.answers.weights_sha256 != head.weights_sha256:
        return "the weights or the inputs are others than the baseline's"
    return why_not(first.taken, first.repeats)


def _names(keys: Sequence[Key]) -> str:
    return ", ".join(f"{key.metric} of {key.arm}" for key in keys)


def is_red(metrics: Sequence[MetricResult], name: str) -> bool:
    """Whether one of this name fails the check."""
    return any(one.metric == name and one.verdict in (GateVerdict.SLOWER, GateVerdict.WORSE) for one in metrics)
