"""How calls of different sizes are served best: every policy's forecast, and the choice with its reason.

In: counts of sizes (of a trace), costs (measured), the user's rules. Out: `ShapeChoice`. A program's start (building it
and reading its files) counts for as much of a process's life as the trace is: start x calls of the trace / horizon. Of
several numbers of buckets the smallest counts that is within the margin of the best: more entries must be worth it.
Memory: a process with one program, and the files of each further one; what needs more than is allowed is no choice.
Where calls may be cut, the best policy that does so is one more (splitting.py says what that costs).
Not covered: whether padding is harmless (the caller says so), the replay that decides (docs/shapes.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from compilot.errors import InputError
from compilot.measure.stats import MIN_MARGIN
from compilot.records import (
    Bucket,
    PolicyForecast,
    ProgramCost,
    ShapeChoice,
    ShapeCosts,
    ShapePolicy,
    SizeDemand,
    SplitRule,
)
from compilot.verdict.buckets import Chosen, Prices, best_buckets
from compilot.verdict.buckets_2d import good_buckets
from compilot.verdict.shape_costs import Costs, Sizes, start_of
from compilot.verdict.splitting import in_parts_s, is_cut, part_sizes, rules_for_all
from compilot.verdict.words import count, percent, seconds, times

MAX_ENTRIES = 8  # programs of one plan, unless the user says otherwise


class ShapeRules(NamedTuple):
    """What the user allows, and how long a process lives."""

    max_entries: int = MAX_ENTRIES
    horizon_calls: int | None = None  # that a process makes; None: so many that a start does not count
    largest: Sizes | None = None  # declared: must be served; None: the largest that was seen
    memory_bytes: int | None = None  # that a process may need; None: any
    margin: float = MIN_MARGIN  # relative gain that is worth another entry


USUAL = ShapeRules()


def choose(counts: Sequence[SizeDemand], costs: ShapeCosts, rules: ShapeRules = USUAL) -> ShapeChoice:
    """The policy with the least forecast; of those within its margin one that serves all sizes with few programs."""
    if rules.max_entries < 1:
        raise InputError("give at least one entry.")
    traffic = _Traffic(merged(counts, rules.largest), costs, rules)
    eager, *others = traffic.forecasts()
    whole = (eager, *filter(traffic.fits, others))
    forecasts = (*whole, *traffic.in_parts(min(one.total_s for one in whole)))
    best_s = min(one.total_s for one in forecasts)
    good = [one for one in forecasts if one.total_s <= best_s * (1.0 + rules.margin)]
    chosen = min(good, key=_preference)
    seen = [one for one in traffic.counts if one.count]
    return ShapeChoice(
        chosen=chosen,
        forecasts=forecasts,
        calls=traffic.calls,
        distinct=len(seen),
        because=_because(chosen, forecasts, traffic.calls, len(seen)),
    )


class ServedSize(NamedTuple):
    """One size of the traffic, and what serves it."""

    sizes: Sizes
    calls: int
    by: Sizes | str  # sizes of a static program, "dynamic" or "eager"
    call_s: float  # forecast of one call


def who_serves(counts: Sequence[SizeDemand], costs: ShapeCosts, policy: PolicyForecast) -> list[ServedSize]:
    """Every size of the traffic, in order, under a policy of a choice."""
    traffic = _Traffic(merged(counts), costs, USUAL)
    padding = costs.may_pad and policy.policy is not ShapePolicy.STATIC
    programs = tuple(one.sizes for one in policy.buckets)
    serve = traffic.server(programs, dynamic=policy.uses_dynamic, padding=padding, split=policy.split)
    found = []
    for one in traffic.counts:
        call_s, by = serve(one.sizes)
        found.append(ServedSize(one.sizes, one.count, by, call_s))
    return found


def powers_of_two(sizes: Sequence[Sizes], largest: Sizes | None = None) -> tuple[Sizes, ...]:
    """The programs of who rounds each of these sizes up; largest: beyond it none is made."""
    return tuple(sorted({_rounded(one, largest) for one in sizes}))


def merged(counts: Sequence[SizeDemand], largest: Sizes | None = None) -> list[SizeDemand]:
    """Each size once, in order, and the largest declared one, which must be served whether it was seen or not."""
    found: dict[Sizes, int] = {}
    for one in counts:
        if one.count < 0 or any(size < 0 for size in one.sizes):
            raise InputError(f"a trace has size {one.sizes} seen {one.count} times; neither may be below zero.")
        found[one.sizes] = found.get(one.sizes, 0) + one.count
    if not sum(found.values()):
        raise InputError("there are no calls in the trace; record some first.")
    if len({len(sizes) for sizes in found}) > 1 or (largest is not None and len(largest) != len(next(iter(found)))):
        raise InputError("all sizes of a trace must have the same number of dimensions.")
    if largest is not None:
        for sizes in found:
            if any(size > top for size, top in zip(sizes, largest, strict=True)):
                raise InputError(f"a call of size {sizes} is larger than the declared {largest}; widen the range.")
        found.setdefault(largest, 0)
    return [SizeDemand(sizes=sizes, count=number) for sizes, number in sorted(found.items())]


class _Traffic:
    """Some calls, and what serving them costs."""

    def __init__(self, counts: list[SizeDemand], costs: ShapeCosts, rules: ShapeRules) -> None:
        self.counts, self._costs, self._rules = counts, costs, rules
        self.calls = sum(one.count for one in counts)
        self._eager = Costs(costs.eager.points)
        self._static = Costs(costs.static.points) if costs.static else None
        self._dynamic = Costs(costs.dynamic.points) if costs.dynamic else None

    def forecasts(self) -> Iterator[PolicyForecast]:
        """Of every policy that is possible, eager first."""
        yield self._forecast(ShapePolicy.EAGER, ())
        if self._dynamic is not None:
            yield self._forecast(ShapePolicy.DYNAMIC, (), dynamic=True)
        yield from self._with_static()

    def _with_static(self) -> Iterator[PolicyForecast]:
        if self._static is None:
            return
        yield from self._pinned(ShapePolicy.STATIC, dynamic=False)
        if not self._costs.may_pad:
            yield from self._pinned(ShapePolicy.MIXED, dynamic=True)
            return
        if (powers := self._powers_of_two()) is not None:
            yield self._forecast(ShapePolicy.POWERS_OF_TWO, powers, padding=True)
        yield from self._bucketed(ShapePolicy.BUCKETS, dynamic=False)
        yield from self._bucketed(ShapePolicy.MIXED, dynamic=True)

    def _bucketed(self, policy: ShapePolicy, *, dynamic: bool) -> Iterator[PolicyForecast]:
        """With padding; mixed: at least one static program before the dynamic one."""
        most = self._rules.max_entries - dynamic
        if most < 1 or (dynamic and self._dynamic is None):
            return
        assert self._static is not None
        prices = Prices(self._static, self._dynamic if dynamic else None, self._costs.pad_s, self._rules.largest)
        find = best_buckets if len(self.counts[0].sizes) == 1 else good_buckets
        found = [one for one in find(self.counts, prices, most) if one.programs]
        if found:
            yield self._fewest(self._told(policy, one, dynamic) for one in found)

    # ---------------------------------------------------------------------------------------------- calls in parts

    def in_parts(self, whole_s: float) -> Iterator[PolicyForecast]:
        """The best policy that cuts calls, if it is better than those that do not; whole_s: the best of those.

        Of several that are as good the one with the largest parts: a forecast knows least of many small ones.
        """
        if not self._costs.may_split or len(self.counts[0].sizes) > 1:
            return
        found = list(filter(self.fits, (*self._cut_by_dynamic(), *self._cut_by_static())))
        best_s = min((one.total_s for one in found), default=math.inf)
        if best_s < whole_s * (1.0 - self._rules.margin):
            good = [one for one in found if one.total_s <= best_s * (1.0 + self._rules.margin)]
            yield min(good, key=lambda one: (-one.split.rows if one.split else 0, one.entries, one.total_s))

    def _cut_by_dynamic(self) -> Iterator[PolicyForecast]:
        if self._dynamic is not None:
            for rule in rules_for_all(self.counts, self._dynamic, self._costs.pad_s):
                yield self._forecast(ShapePolicy.SPLIT, (), dynamic=True, padding=True, split=rule)

    def _cut_by_static(self) -> Iterator[PolicyForecast]:
        """Buckets for calls of up to so many rows, with or without the dynamic program; parts are of the largest."""
        if self._static is None or not self._costs.may_pad:
            return
        for rows in part_sizes(self.counts, self._static):
            rule = SplitRule(rows=rows, min=rows + 1)
            for programs, dynamic in self._up_to(rows):
                if (rows,) in programs:
                    yield self._forecast(ShapePolicy.SPLIT, programs, dynamic=dynamic, padding=True, split=rule)

    def _up_to(self, rows: int) -> Iterator[tuple[tuple[Sizes, ...], bool]]:
        """Programs for the calls of up to so many rows; also: with the dynamic one behind them."""
        small = [one for one in self.counts if one.sizes[0] <= rows]
        if not any(one.count for one in small):
            yield ((rows,),), False
            return
        rules = self._rules._replace(largest=(rows,))
        below = _Traffic(merged(small, (rows,)), self._costs, rules)
        for dynamic in (False, True):
            for base in below._bucketed(ShapePolicy.SPLIT, dynamic=dynamic):
                yield tuple(one.sizes for one in base.buckets), dynamic

    def _told(self, policy: ShapePolicy, chosen: Chosen, dynamic: bool) -> PolicyForecast:
        return self._forecast(policy, chosen.programs, dynamic=dynamic, padding=True)

    def _pinned(self, policy: ShapePolicy, *, dynamic: bool) -> Iterator[PolicyForecast]:
        """Without padding: programs for the sizes that save most, one size each; at least one of them."""
        behind = self._dynamic if dynamic else self._eager
        if behind is None:
            return
        assert self._static is not None
        saved = [(one.count * (behind.at(one.sizes) - self._static.at(one.sizes)), one.sizes) for one in self.counts]
        order = [sizes for gain, sizes in sorted(saved, reverse=True) if gain > 0]
        most = min(len(order), self._rules.max_entries - dynamic)
        sets = [tuple(sorted(order[:number])) for number in range(1, most + 1)]
        if sets:
            yield self._fewest(self._forecast(policy, chosen, dynamic=dynamic) for chosen in sets)

    def _fewest(self, forecasts: Iterator[PolicyForecast]) -> PolicyForecast:
        """The smallest number of programs that is within the margin of the best."""
        every = list(forecasts)
        found = list(filter(self.fits, every)) or every
        best_s = min(one.total_s for one in found)
        good = [one for one in found if one.total_s <= best_s * (1.0 + self._rules.margin)]
        return min(good, key=lambda one: (one.entries, one.total_s))

    def _powers_of_two(self) -> tuple[Sizes, ...] | None:
        """The programs of who rounds every size up; None: they are more than the user allows."""
        found = powers_of_two([one.sizes for one in self.counts], self._rules.largest)
        return found if len(found) <= self._rules.max_entries else None

    def fits(self, one: PolicyForecast) -> bool:
        """Whether a process with its programs needs no more memory than the user allows, as far as that is known."""
        limit = self._rules.memory_bytes
        return limit is None or one.memory_bytes <= limit

    # ------------------------------------------------------------------------------------------------ one forecast

    def _forecast(
        self,
        policy: ShapePolicy,
        programs: tuple[Sizes, ...],
        *,
        dynamic: bool = False,
        padding: bool = False,
        split: SplitRule | None = None,
    ) -> PolicyForecast:
        """What the calls take with these programs: each goes to the cheapest one that may serve it."""
        serve = self.server(programs, dynamic=dynamic, padding=padding, split=split)
        by: dict[Sizes | str, list[SizeDemand]] = {}
        calls_s = 0.0
        for one in self.counts:
            call_s, who = serve(one.sizes)
            calls_s += one.count * call_s
            by.setdefault(who, []).append(one)
        buckets = tuple(self._bucket(program, by.get(program, [])) for program in programs)
        start_s = len(buckets) * _start_s(self._costs.static) + (_start_s(self._costs.dynamic) if dynamic else 0.0)
        horizon = self._rules.horizon_calls
        return PolicyForecast(
            policy=policy,
            calls_s=calls_s,
            start_s=start_s,
            total_s=calls_s + (start_s * self.calls / horizon if horizon else 0.0),
            memory_bytes=_memory_bytes(self._costs, len(buckets), dynamic=dynamic),
            buckets=buckets,
            dynamic_calls=sum(one.count for one in by.get("dynamic", [])),
            eager_calls=sum(one.count for one in by.get("eager", [])),
            uses_dynamic=dynamic,
            split=split,
        )

    def server(
        self, programs: tuple[Sizes, ...], *, dynamic: bool, padding: bool, split: SplitRule | None = None
    ) -> Callable[[Sizes], tuple[float, Sizes | str]]:
        """Who serves a size, and for how many seconds."""

        def serve(sizes: Sizes) -> tuple[float, Sizes | str]:
            if split is not None and is_cut(split, sizes):
                return self._in_parts(sizes, programs, split)
            holding = [one for one in programs if one == sizes or (padding and _holds(one, sizes))]
            found = [(self._at(one, sizes), 0, one) for one in holding]
            if dynamic and self._dynamic is not None:
                found.append((self._dynamic.at(sizes), 1, ()))
            if not found:
                return self._eager.at(sizes), "eager"
            call_s, kind, program = min(found)
            return call_s, "dynamic" if kind else program

        return serve

    def _in_parts(self, sizes: Sizes, programs: tuple[Sizes, ...], split: SplitRule) -> tuple[float, Sizes | str]:
        own = (split.rows,) in programs
        program = self._static if own else self._dynamic
        assert program is not None
        return in_parts_s(sizes[0], split, program, self._costs.pad_s, pads=own), (split.rows,) if own else "dynamic"

    def _at(self, program: Sizes, sizes: Sizes) -> float:
        assert self._static is not None
        return self._static.at(program) + (self._costs.pad_s if program != sizes else 0.0)

    def _bucket(self, program: Sizes, served: Sequence[SizeDemand]) -> Bucket:
        assert self._static is not None
        return Bucket(
            sizes=program,
            smallest=tuple(map(min, zip(program, *(one.sizes for one in served), strict=True))),
            calls=sum(one.count for one in served),
            padded=sum(one.count for one in served if one.sizes != program and _holds(program, one.sizes)),
            split=sum(one.count for one in served if not _holds(program, one.sizes)),
            call_s=self._static.at(program),
        )


def _preference(one: PolicyForecast) -> tuple[bool, bool, bool, int, float]:
    """Eager where it is good enough, then what serves every declared size, whole calls, the fewest programs."""
    eager, static = one.policy is not ShapePolicy.EAGER, one.policy is ShapePolicy.STATIC
    return eager, static, one.split is not None, one.entries, one.total_s


def _memory_bytes(costs: ShapeCosts, static: int, *, dynamic: bool) -> int:
    """Of a process with so many programs for one size, and perhaps the dynamic one; 0: not known."""
    kinds = [(costs.static, static), (costs.dynamic, int(dynamic))]
    used = [(program, number) for program, number in kinds if program is not None and number]
    if not used or not all(program.memory_bytes for program, _ in used):
        return 0
    largest = max((program for program, _ in used), key=lambda program: program.memory_bytes)
    return largest.memory_bytes - largest.size_bytes + sum(number * program.size_bytes for program, number in used)


def _start_s(program: ProgramCost | None) -> float:
    return start_of(program.build_s, program.size_bytes) if program is not None else 0.0


def _holds(program: Sizes, sizes: Sizes) -> bool:
    return all(own >= size for own, size in zip(program, sizes, strict=True))


def _rounded(sizes: Sizes, top: Sizes | None) -> Sizes:
    powers = tuple(1 << max(0, size - 1).bit_length() for size in sizes)
    return powers if top is None else tuple(map(min, powers, top))


def _because(chosen: PolicyForecast, forecasts: Sequence[PolicyForecast], calls: int, distinct: int) -> str:
    eager = forecasts[0]
    traffic = f"{count(calls, 'call')} of {count(distinct, 'size')}"
    if chosen.policy is ShapePolicy.EAGER:
        return f"no policy is forecast to be faster than eager for {traffic} ({seconds(eager.total_s)})"
    others = [one for one in forecasts[1:] if one.policy is not chosen.policy]
    text = f"{traffic}: {seconds(chosen.total_s)} with {_described(chosen, calls)}, {seconds(eager.total_s)} in eager"
    text += f" ({times(eager.total_s / chosen.total_s)})"
    if others:
        best = min(others, key=lambda one: one.total_s)
        text += (
            f"; the next best, {best.policy.value}, takes {seconds(best.total_s)} with {count(best.entries, 'program')}"
        )
    return text


def cut_words(split: SplitRule | None) -> str:
    """ ", calls of 17 rows and more in parts of 16"."""
    return "" if split is None else f", calls of {split.min} rows and more in parts of {split.rows}"


def _described(chosen: PolicyForecast, calls: int) -> str:
    parts = []
    if chosen.buckets:
        where = ", ".join("x".join(map(str, one.sizes)) for one in chosen.buckets)
        parts.append(f"{count(len(chosen.buckets), 'static program')} ({where})")
    if chosen.uses_dynamic:
        share = chosen.dynamic_calls / calls
        parts.append("one dynamic program" + (f" for {percent(share)} of the calls" if chosen.buckets else ""))
    return " and ".join(parts) + cut_words(chosen.split)


__all__ = ["MAX_ENTRIES", "ServedSize", "ShapeRules", "choose", "merged", "who_serves"]
