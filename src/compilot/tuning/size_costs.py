"""What programs cost at the sizes of a trace: measured, engine by engine.

In: a runner that has opened the model, the traffic, one dynamic candidate of each engine that worked. Out: cost curves
of eager, of the dynamic programs, and of programs for one size, with what building them takes; trials of the latter.
Eager and the dynamic programs are raced at about ten sizes; a program for one size is an ordinary trial whose example
has that size, and its cost is eager's there over its speed-up. What time allows decides how many are built, the most
telling ones first: the ends, in two dimensions the corners. Fewer than two sizes of a dimension are no curve. Not
covered: which policy follows (verdict/policies.py), what is raced in the end (size_arms.py).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    CostPoint,
    DimRange,
    Padding,
    PaddingLeak,
    ProgramCost,
    ShapeCosts,
    Shapes,
    SizeDemand,
    State,
    Traffic,
    Trial,
)
from compilot.trials.runner import ArmLost, Job, RaceRules, ReplayRules, Runner
from compilot.tuning.journal import RunJournal
from compilot.verdict.finalists import screening_ratio
from compilot.verdict.shape_costs import Costs, Sizes, memory_of
from compilot.verdict.sizes_to_measure import sizes_to_measure

PAIRS = 6  # at each size: a curve of ten points has sixty
LEAST_TRIAL_S = 20.0
MOST_DIMS = 2  # that programs are chosen for; of more, programs for all sizes serve all of it
LEAST_SHARE = 0.5  # of a curve: changing sizes make no call faster than that, the machine was slow before
FEWEST = 2  # sizes of a curve in each dimension: its ends


class Curves(NamedTuple):
    """Seconds of a call at the measured sizes, from the same rounds."""

    eager: dict[Sizes, float]
    dynamic: dict[str, dict[Sizes, float]]  # by candidate; sizes at which it failed are missing
    change_s: dict[str, float] = {}  # by candidate, eager's too: what a call takes on top where sizes change


class SizePrograms:
    """Programs for one size each, built when they are asked for."""

    def __init__(self, runner: Runner, journal: RunJournal, traffic: Traffic, observer: Observer) -> None:
        self._runner, self._journal, self._traffic, self._observer = runner, journal, traffic, observer
        self._leaks: dict[str, PaddingLeak | None] = {}
        self.pad_s: dict[str, float] = {}  # of padding a call, by candidate

    def candidate(self, base: Candidate, sizes: Sizes) -> Candidate:
        """The same settings for one size."""
        settings = msgspec.structs.replace(base.settings, shapes=Shapes.STATIC)
        named, told = self._traffic.named(sizes), "x".join(map(str, sizes))
        return msgspec.structs.replace(
            base, settings=settings, sizes=named, label=f"{base.label} {told}", rationale=f"a program for size {told}"
        )

    def built(self, base: Candidate, sizes: Sizes, limit_s: float) -> Trial:
        """Its trial, tried now unless that was done before."""
        candidate = self.candidate(base, sizes)
        if (known := self._journal.trials.get(candidate.id)) is not None and known.state is not State.TIMED_OUT:
            return known
        self._observer.trying(candidate, len(self._journal.trials) + 1, limit_s)
        self._runner.submit([Job(candidate, max(LEAST_TRIAL_S, limit_s))])
        trial = next(iter(self._runner.completed()))
        self._journal.append(trial)
        return trial

    def leak(self, trial: Trial, padding: Padding) -> PaddingLeak | None:
        """Why its padded calls are not eager's; None: they are. Asked once."""
        key = trial.candidate.id
        if key not in self._leaks:
            self._observer.doing(f"checking padded calls of {trial.candidate.label}")
            seen = self._runner.check_padding(trial, padding)
            self._leaks[key], self.pad_s[key] = seen.leak, seen.pad_s
        return self._leaks[key]


def places(traffic: Traffic, most: int) -> list[Sizes]:
    """The sizes to measure, a grid in two dimensions; most: of all of them together, about."""
    each = most if len(traffic.dims) == 1 else max(FEWEST, math.isqrt(most))
    ranges = [DimRange(min=max(dim.min, 1), max=dim.max) for dim in traffic.dims]
    if len(ranges) > MOST_DIMS:
        return list(itertools.product(*((one.min, one.max) for one in ranges)))
    return list(itertools.product(*sizes_to_measure(ranges, traffic.demand, each)))


def curves(runner: Runner, trials: Sequence[Trial], sizes: Sequence[Sizes], traffic: Traffic) -> Curves:
    """Eager and the dynamic programs side by side at each size."""
    found = Curves({}, {trial.candidate.id: {} for trial in trials})
    for place in sizes:
        rules = RaceRules((PAIRS,), purpose=f"size {'x'.join(map(str, place))}", sizes=traffic.named(place))
        _at_one(runner, list(trials), rules, place, found)
    return found


def _at_one(runner: Runner, trials: list[Trial], rules: RaceRules, place: Sizes, found: Curves) -> None:
    """One size; who fails there has no figure, and where eager itself fails nobody has one."""
    while True:
        try:
            race = runner.race(trials, rules)
            break
        except ArmLost as lost:
            trials = [trial for trial in trials if trial.candidate.id != lost.owner]
        except EnvironmentProblem:
            return
    middle = {
        arm: statistics.median(row[index] for process in race.processes for row in process.rounds)
        for index, arm in reversed(list(enumerate(race.arms)))
    }
    found.eager[place] = middle[EAGER.id]
    for trial in trials:
        found.dynamic[trial.candidate.id][place] = middle[trial.candidate.id]


def with_changes(runner: Runner, trials: Sequence[Trial], found: Curves, traffic: Traffic, requests: int) -> Curves:
    """The curves, and what changing sizes cost eager and each program for all sizes; requests: so many tell it.

    A curve comes from many calls of one size. Some engines prepare a program anew whenever the size changes, and eager
    asks for other memory, so that in real traffic calls are dearer. What a few requests of the trace take tells it.
    """
    able = [trial for trial in trials if found.dynamic.get(trial.candidate.id)]
    rows = _changing(runner, able, ReplayRules(requests, purpose="changing sizes"))
    made, change = traffic.requests[: len(rows)], dict[str, float]()
    for column, own in enumerate((EAGER.id, *(trial.candidate.id for trial in able)) if rows else ()):
        curve = found.eager if own == EAGER.id else found.dynamic[own]
        change[own] = change_of(made, [row[column] for row in rows], curve)
    return found._replace(change_s=change)


def _changing(runner: Runner, able: list[Trial], rules: ReplayRules) -> Sequence[tuple[float, ...]]:
    """The seconds of requests, eager's first; who fails at them is taken out of `able`. None where eager fails."""
    while able:
        try:
            return runner.over_requests(able, rules).rounds
        except ArmLost as lost:
            able[:] = [trial for trial in able if trial.candidate.id != lost.owner]
        except EnvironmentProblem:
            break
    return ()


def change_of(requests: Sequence[Sizes], took_s: Sequence[float], curve: Mapping[Sizes, float]) -> float:
    """Seconds on top of a call that make a curve say what these requests took; below zero where it said too much."""
    costs = Costs(_points(_grid(curve)))
    return sum(took - costs.at(sizes) for sizes, took in zip(requests, took_s, strict=True)) / max(1, len(requests))


def _in_traffic(curve: Mapping[Sizes, float], change_s: float) -> dict[Sizes, float]:
    return {sizes: max(LEAST_SHARE * own_s, own_s + change_s) for sizes, own_s in _grid(curve).items()}


def telling_first(sizes: Sequence[Sizes]) -> list[Sizes]:
    """The same sizes, a whole grid: its corners, then one more size of one dimension after another with all that the
    others have by then, so that what is built when time ends is a grid but for the last row.
    """
    axes = [_ends_first(sorted(set(axis))) for axis in zip(*sizes, strict=True)]
    taken = [axis[:FEWEST] for axis in axes]
    order = list(itertools.product(*taken))
    while len(order) < len(sizes):
        for number, axis in enumerate(axes):
            taken[number] = axis[: len(taken[number]) + 1]
            order += [place for place in itertools.product(*taken) if place not in order]
    return order


def _ends_first(sizes: Sequence[int]) -> list[int]:
    """The ends, the largest first, then the middle, then the middles of what is left."""
    order, ranges = list[int](), [(0, len(sizes) - 1)]
    while ranges:
        low, high = ranges.pop(0)
        order += [index for index in dict.fromkeys((high, low)) if index not in order]
        if high - low > 1:
            middle = (low + high) // 2
            order += [middle] if middle not in order else []
            ranges += [(low, middle), (middle, high)]
    return [sizes[index] for index in order]


def static_cost(eager: Mapping[Sizes, float], trials: Mapping[Sizes, Trial]) -> ProgramCost | None:
    """What programs for one size cost, from those that worked; None: too few did for a curve in each dimension."""
    base = Costs(_points(_grid(eager)))
    points = {}
    for sizes, trial in trials.items():
        if trial.state is State.OK and (ratio := screening_ratio(trial)):
            points[sizes] = base.at(sizes) / ratio
    points = _grid(points)
    if not _is_curve(points):
        return None
    built = [trial for trial in trials.values() if trial.measurement is not None and trial.state is State.OK]
    return ProgramCost(
        points=_points(points),
        build_s=statistics.median(t.measurement.cold_s for t in built if t.measurement),
        size_bytes=round(statistics.median(sum(f.size_bytes for f in t.artifacts) for t in built)),
        memory_bytes=max(map(memory_of, built)),
    )


def dynamic_cost(trial: Trial, found: Curves) -> ProgramCost | None:
    """What a dynamic program costs in traffic whose sizes change; None: it has too few figures."""
    own = trial.candidate.id
    points = _in_traffic(found.dynamic.get(own, {}), found.change_s.get(own, 0.0))
    if not _is_curve(points):
        return None
    cold_s = trial.measurement.cold_s if trial.measurement is not None else 0.0
    size_bytes = sum(file.size_bytes for file in trial.artifacts)
    return ProgramCost(points=_points(points), build_s=cold_s, size_bytes=size_bytes, memory_bytes=memory_of(trial))


def eager_cost(found: Curves) -> ProgramCost:
    """What calls cost without a program, in traffic whose sizes change."""
    return ProgramCost(points=_points(_in_traffic(found.eager, found.change_s.get(EAGER.id, 0.0))))


def total_of(cost: ProgramCost, demand: Sequence[SizeDemand]) -> float:
    """Seconds of all calls of a trace."""
    curve = Costs(cost.points)
    return sum(one.count * curve.at(one.sizes) for one in demand)


def shape_costs(
    found: Curves,
    static: ProgramCost | None,
    dynamic: ProgramCost | None,
    *,
    pad_s: float,
    may_pad: bool,
    may_split: bool = False,
) -> ShapeCosts:
    """All of it for one engine."""
    return ShapeCosts(
        eager=eager_cost(found), static=static, dynamic=dynamic, pad_s=pad_s, may_pad=may_pad, may_split=may_split
    )


def _points(seconds: Mapping[Sizes, float]) -> tuple[CostPoint, ...]:
    return tuple(CostPoint(sizes=sizes, call_s=value) for sizes, value in sorted(seconds.items()))


def _is_curve(points: Mapping[Sizes, float]) -> bool:
    """Whether a grid says how the cost grows in each dimension: of a single size it would be the same for all."""
    return bool(points) and all(len(set(axis)) >= FEWEST for axis in zip(*points, strict=True))


def _grid(points: Mapping[Sizes, float]) -> dict[Sizes, float]:
    """The largest part of the points that is a whole grid: a size at which something failed takes its row with it.

    Of several rows that lack as much, the one with the fewest points goes.
    """
    left = dict(points)
    while left:
        axes = [sorted(set(axis)) for axis in zip(*left, strict=True)]
        missing = [place for place in itertools.product(*axes) if place not in left]
        if not missing:
            break
        rows = [(dim, size) for dim, axis in enumerate(axes) for size in axis]
        lacking = {(dim, size): sum(place[dim] == size for place in missing) for dim, size in rows}
        having = {(dim, size): sum(place[dim] == size for place in left) for dim, size in rows}
        dim, size = max(rows, key=lambda row: (lacking[row], -having[row], row))
        left = {place: value for place, value in left.items() if place[dim] != size}
    return left
