"""What the effects of one or two races mean: a verdict for each metric. In: effects, counts. Out: results. Pure.

Red only when the whole interval exceeds the margin in the first race (after Holm's correction over all metrics) and in
a second race with fresh builds, and the change over both races together is larger than what so much data can show. A
pass can exclude a change of `rule_out`, and names the smallest change that would have been red. Everything else is
inconclusive. Counts do not depend on noise: they are compared exactly. A head that crashes is red; one that was killed
or ran out of time is red if that happens twice, since the machine may have done it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.gate import words
from compilot.gate.effects import Effect, Key
from compilot.gate.metrics import COUNTS, LATENCY, MEMORY, RUNS, THROUGHPUT, Count
from compilot.gate.races import Failure, OneSet
from compilot.gate.report_records import GateVerdict, MetricResult
from compilot.gate.sides import BASE, HEAD
from compilot.gate.small_samples import holm
from compilot.trials.protocol import ArmFacts

OTHER_TORCH = "the sides have different versions of torch, which alone may make that difference"


def suspects(effects: Mapping[Key, Effect], allowed: Collection[str] = ()) -> list[Key]:
    """Metrics that look worse after a race: they are what a second race is for."""
    asked = [key for key in effects if key.metric not in allowed]
    rejected = holm([effects[key].p for key in asked])
    return [key for key, says in zip(asked, rejected, strict=True) if says and effects[key].exceeds]


class Second(NamedTuple):
    """What a second race gave."""

    effects: Mapping[Key, Effect]  # of itself
    whole: Mapping[Key, Effect]  # of both races together


def judge(first: Mapping[Key, Effect], second: Second | None, allowed: Collection[str] = ()) -> list[MetricResult]:
    """A verdict for each effect; second: of the race for the suspects, None where there was none."""
    looked = suspects(first, allowed)
    found = {key: one for key, one in (second.effects if second else {}).items() if key in looked}
    again = suspects(found, allowed)
    results = []
    for key, effect in first.items():
        if key in again and second is not None and key in second.whole and second.whole[key].is_large:
            results.append(_red(key, effect, found[key], second.whole[key]))
        else:
            results.append(_judged(key, effect, found.get(key), key in looked, allowed))
    return results


def _red(key: Key, first: Effect, second: Effect, whole: Effect) -> MetricResult:
    """Both races show it; the figures are those of all their data."""
    verdict = GateVerdict.SLOWER if whole.is_time else GateVerdict.WORSE
    races = f"{words.change(first)} in the first, {words.change(second)} in a second race with fresh builds"
    return _result(key, whole, verdict, f"{words.effect(whole)}: {races}", mde=whole.mde, races=2)


def _judged(key: Key, first: Effect, second: Effect | None, looked: bool, allowed: Collection[str]) -> MetricResult:
    verdict, because = _unconfirmed(first, second) if looked else _verdict(first)
    if key.metric in allowed:
        verdict, because = GateVerdict.PASS, f"{words.effect(first)}; a change is allowed"
    return _result(key, first, verdict, because, mde=first.seen, races=1 if second is None else 2)


def _result(key: Key, of: Effect, verdict: GateVerdict, because: str, *, mde: float, races: int) -> MetricResult:
    return MetricResult(
        metric=key.metric,
        arm=key.arm,
        verdict=verdict,
        because=because,
        unit=of.unit,
        base=of.base,
        head=of.head,
        change=of.change,
        low=of.low,
        high=of.high,
        margin=of.margin,
        mde=mde,
        races=races,
    )


def _unconfirmed(first: Effect, second: Effect | None) -> tuple[GateVerdict, str]:
    if second is None:
        return GateVerdict.INCONCLUSIVE, f"looks {words.effect(first)}, but no second race could confirm it"
    text = f"looked {words.effect(first)}, but a second race with fresh builds gave {words.change(second)}"
    return GateVerdict.INCONCLUSIVE, f"{text}: not confirmed"


def _verdict(first: Effect) -> tuple[GateVerdict, str]:
    """Where nothing is suspected."""
    quiet = first.margin <= first.rule_out  # equal programs did not differ by more than what is to be excluded
    if quiet and first.high < first.rule_out and first.change <= first.margin:
        return GateVerdict.PASS, f"{words.effect(first)}; {words.seen(first)}"
    if not quiet:
        text = f"{words.effect(first)}, but the base against itself differed by {words.share(first.margin)}"
        return GateVerdict.INCONCLUSIVE, f"{text}: give a larger budget, or a quieter machine"
    if first.change > first.margin:
        return GateVerdict.INCONCLUSIVE, f"looks {words.effect(first)}, which is not proven: {words.more_time(first)}"
    return GateVerdict.INCONCLUSIVE, f"{words.effect(first)}: {words.more_time(first)}"


def with_throughput(results: Sequence[MetricResult], samples: Mapping[str, int]) -> list[MetricResult]:
    """Samples per second beside each latency: the same measurement in the unit of those who serve."""
    found = []
    for one in results:
        found.append(one)
        if one.metric == LATENCY and one.arm in samples and one.base and one.head:
            found.append(_throughput(one, samples[one.arm]))
    return found


def _throughput(latency: MetricResult, samples: int) -> MetricResult:
    assert latency.base
    assert latency.head
    return MetricResult(
        metric=THROUGHPUT,
        arm=latency.arm,
        verdict=latency.verdict,
        because="from the latency, which is the same measurement",
        unit="samples/s",
        base=samples / latency.base,
        head=samples / latency.head,
        change=_inverse(latency.change),
        low=_inverse(latency.high),
        high=_inverse(latency.low),
        margin=latency.margin,
        mde=latency.mde,
        races=latency.races,
    )


def _inverse(change: float | None) -> float | None:
    """What a change of the time is for what is done in that time."""
    return None if change is None else 1.0 / (1.0 + change) - 1.0


# ------------------------------------------------------------------------------------------------------------- counts


def judge_counts(
    base: Mapping[str, Sequence[ArmFacts]],
    head: Mapping[str, Sequence[ArmFacts]],
    allowed: Collection[str] = (),
    no_costs: str = "",
) -> list[MetricResult]:
    """Everything that can be compared exactly, by arm; base and head: facts of each set.

    no_costs: why what depends on the processor and on torch cannot be compared; "": it can.
    """
    found = []
    for arm in head:
        for count in COUNTS:
            result = _counted(count, arm, base.get(arm, ()), head[arm], allowed)
            if result is not None:
                comparable = count.is_portable or not no_costs
                found.append(result if comparable else not_measured(count.name, arm, no_costs))
    return found


def _counted(
    count: Count, arm: str, base: Sequence[ArmFacts], head: Sequence[ArmFacts], allowed: Collection[str]
) -> MetricResult | None:
    before, after = _values(count, base), _values(count, head)
    if not before or not after or (max(before) == max(after) == 0 and count.name in ("compiler-runs", "fallbacks")):
        return None
    old, new = min(before), min(after)
    exactly = f"more than {words.share(count.growth)} more would be red" if count.growth else "compared exactly"
    verdict, because = GateVerdict.PASS, f"{words.count(old, count.unit)}, as before; {exactly}"
    if new != old:
        because = f"{words.count(old, count.unit)} before, {words.count(new, count.unit)} now"
    if new > old * (1.0 + count.growth):
        verdict = GateVerdict.PASS if count.name in allowed else GateVerdict.WORSE
        because += "; a change is allowed" if count.name in allowed else ""
        if new <= max(before):
            verdict, because = GateVerdict.INCONCLUSIVE, f"{because}, but the base itself varied up to {max(before)}"
    change = (new - old) / old if old else (0.0 if new == old else None)
    return MetricResult(
        metric=count.name,
        arm=arm,
        verdict=verdict,
        because=because,
        unit=count.unit,
        base=float(old),
        head=float(new),
        change=change,
        margin=count.growth,
        mde=count.growth,
        races=1,
    )


def _values(count: Count, facts: Sequence[ArmFacts]) -> list[int]:
    """Of builds that began with nothing: a loaded one counts less."""
    return [value for one in facts if one.cold_cache and (value := count.read(one)) is not None]


# ----------------------------------------------------------------------------------------------------------- failures


def judge_failures(sets: Sequence[OneSet], arms: Sequence[str]) -> list[MetricResult]:
    """An arm that fails: red where only the head's does, not measured where there is nothing to compare with."""
    found = []
    for arm in arms:
        base, head = (_failures(sets, side, arm) for side in (BASE, HEAD))
        if base:
            both = f"both sides fail: {base[0].reason}" if head else f"the base fails: {base[0].reason}"
            found.append(_failed(arm, GateVerdict.NOT_MEASURED, both))
        elif head:
            found.append(_failed(arm, *_head_alone(head)))
    return found


def _failures(sets: Sequence[OneSet], side: str, arm: str) -> list[Failure]:
    return [failure for one in sets if (failure := one.failures.get(f"{side} {arm}")) is not None]


def _head_alone(failures: Sequence[Failure]) -> tuple[GateVerdict, str]:
    """Where only the head fails: what the machine may have done has to come back."""
    own = next((one for one in failures if not one.by_machine), None)
    if own is not None:
        how = "crashed" if own.crashed else "fails"
        return GateVerdict.WORSE, f"the head {how} where the base works: {own.reason}"
    first = failures[0].reason
    if len(failures) > 1:
        return GateVerdict.WORSE, f"the head was ended {len(failures)} times where the base works: {first}"
    text = f"the head was ended once where the base works, and not again: {first}"
    return GateVerdict.INCONCLUSIVE, f"{text}; run the check again, with more memory or time"


def _failed(arm: str, verdict: GateVerdict, because: str) -> MetricResult:
    return MetricResult(metric=RUNS, arm=arm, verdict=verdict, because=because, unit="")


def not_measured(metric: str, arm: str, because: str) -> MetricResult:
    """A metric without a figure, and why."""
    return MetricResult(metric=metric, arm=arm, verdict=GateVerdict.NOT_MEASURED, because=because, unit="")


def spare_other_torch(results: Sequence[MetricResult]) -> list[MetricResult]:
    """Where both sides have another torch: what a compiler makes, and memory, is the torch's and no fault of the head.

    It is shown with a warning, and is not red.
    """
    of_torch = {count.name for count in COUNTS if not count.is_portable} | {MEMORY}
    return [
        msgspec.structs.replace(one, verdict=GateVerdict.INCONCLUSIVE, because=f"{one.because}; {OTHER_TORCH}")
        if one.metric in of_torch and one.verdict.is_red
        else one
        for one in results
    ]


def overall(results: Sequence[MetricResult], *, without_times: bool = False) -> tuple[GateVerdict, str]:
    """The verdict of the whole check and its sentence; without_times: it was known before that there are none."""
    results = [one for one in results if one.metric != THROUGHPUT]  # its latency speaks for it
    red = [one for one in results if one.verdict.is_red]
    if red:
        slower = any(one.verdict is GateVerdict.SLOWER for one in red)
        verdict = GateVerdict.SLOWER if slower else GateVerdict.WORSE
        return verdict, "; ".join(f"{one.metric} of {one.arm}: {one.because}" for one in red[:3])
    measured = [one for one in results if one.verdict is not GateVerdict.NOT_MEASURED]
    if not measured:
        return GateVerdict.NOT_MEASURED, next((one.because for one in results), "nothing could be measured")
    doubtful = [one for one in measured if one.verdict is GateVerdict.INCONCLUSIVE]
    if doubtful:
        return GateVerdict.INCONCLUSIVE, "; ".join(f"{one.metric} of {one.arm}: {one.because}" for one in doubtful[:2])
    untimed = next((one for one in results if one.metric == LATENCY and one not in measured), None)
    latency = [one for one in measured if one.metric == LATENCY and one.mde is not None]
    if untimed is not None and not latency and not without_times:
        return GateVerdict.INCONCLUSIVE, f"no latency was measured: {untimed.because}"
    shown = max((one.mde or 0.0 for one in latency), default=None)
    text = f"nothing is slower or worse in {words.plural(len(measured), 'metric')}"
    return GateVerdict.PASS, text if shown is None else f"{text}; a slow-down of {shown:.1%} would have been seen"
