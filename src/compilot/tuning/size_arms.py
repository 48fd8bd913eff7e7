"""From forecasts to whole plans that can be replayed.

In: each engine's costs and choice, the padding that was proven, programs that can be built. Out: arms: entries with the
guards of the calls that they take, files of trials that passed the gate, and what each arm costs to start. The best
policies by forecast, the best one without padding, and the best single program; a program that cannot be built, or
whose padded calls leak, takes its policy out, and the reason is noted. Not covered: the replay (serving.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.errors import PlanError
from compilot.records import (
    Candidate,
    DimRange,
    EngineSizes,
    Evidence,
    Guard,
    Padding,
    PlanEntry,
    PolicyArm,
    PolicyForecast,
    ShapePolicy,
    SplitCalls,
    SplitRule,
    State,
    TensorGuard,
    Traffic,
    Trial,
)
from compilot.runtime.padded_guards import ending_at, taken_by
from compilot.runtime.split_guards import taken_in_parts
from compilot.trials.runner import Arm
from compilot.tuning.replays import Made
from compilot.tuning.size_costs import SizePrograms
from compilot.verdict.replay_forecast import Taker
from compilot.verdict.shape_costs import Sizes
from compilot.verdict.shape_entries import PADDING, ShapeEntry, SizePlaces, shape_entries


class Base(NamedTuple):
    """What the programs of an engine are made from."""

    candidate: Candidate  # whose settings they have
    dynamic: Trial | None = None  # its program for all sizes; None: the engine has none that works


class Measured(NamedTuple):
    """What programs of an engine cost, what follows from it, and what they are made from."""

    sizes: EngineSizes
    base: Base


class Policy(NamedTuple):
    """One way to serve the traffic."""

    engine: EngineSizes
    forecast: PolicyForecast
    base: Base

    @property
    def speedup(self) -> float:
        """Over eager, by forecast."""
        return self.engine.choice.forecasts[0].total_s / self.forecast.total_s

    @property
    def label(self) -> str:
        """ "openvino buckets 64, 512"."""
        sizes = ", ".join("x".join(map(str, bucket.sizes)) for bucket in self.forecast.buckets)
        cut = self.forecast.split
        told = f" in parts of {cut.rows}" if cut is not None else ""
        return f"{self.engine.label} {self.forecast.policy} {sizes}".strip() + told


def policies_to_try(engines: Sequence[Measured], most: int) -> list[Policy]:
    """The best by forecast, then the best without padding and the best single program; at most so many."""
    every = [
        Policy(engine, forecast, base)
        for engine, base in engines
        for forecast in engine.choice.forecasts
        if forecast.policy is not ShapePolicy.EAGER and not _leaves_sizes(forecast, engine)
    ]
    ranked = sorted(every, key=lambda policy: -policy.speedup)
    single = [one for one in ranked if one.forecast.policy is ShapePolicy.DYNAMIC]
    plain = [one for one in ranked if not _pads(one)]
    chosen = [*ranked[:1], *single[:1], *plain[:1], *ranked[1:]]
    unique = list(dict.fromkeys((one.engine.engine, one.forecast.policy) for one in chosen))[:most]
    return [next(one for one in chosen if (one.engine.engine, one.forecast.policy) == key) for key in unique]


def _leaves_sizes(forecast: PolicyForecast, engine: EngineSizes) -> bool:
    """Whether it would leave sizes to eager that the engine's program for all sizes could serve."""
    return forecast.policy is ShapePolicy.STATIC and engine.costs.dynamic is not None


def _pads(policy: Policy) -> bool:
    return policy.engine.costs.may_pad and policy.forecast.policy in PADDING


def missing_programs(policy: Policy, programs: SizePrograms, known: Sequence[str]) -> list[Sizes]:
    """Sizes whose programs have no trial yet."""
    sizes = [bucket.sizes for bucket in policy.forecast.buckets]
    return [one for one in sizes if programs.candidate(policy.base.candidate, one).id not in known]


def made(
    policy: Policy, number: int, programs: SizePrograms, traffic: Traffic, padding: Padding | None, limit_s: float
) -> Made | str:
    """The policy with its programs built; a sentence where that cannot be."""
    try:
        return _made(policy, number, programs, traffic, padding, limit_s)
    except PlanError as problem:  # its guards would let through what was not proven
        return f"{policy.label} cannot be used: {problem}"


def _made(
    policy: Policy, number: int, programs: SizePrograms, traffic: Traffic, padding: Padding | None, limit_s: float
) -> Made | str:
    pads = _pads(policy)
    choice = msgspec.structs.replace(policy.engine.choice, chosen=policy.forecast)
    dims = [SizePlaces(tuple((place.path, place.dim) for place in dim.places)) for dim in traffic.dims]
    entries, trials = list[PlanEntry](), list[Trial]()
    for shape in shape_entries(choice, traffic.guard, dims, may_pad=pads):
        trial = _program(policy, shape, programs, limit_s)
        if trial.state is not State.OK or trial.guard is None:
            return f"{policy.label}: {trial.candidate.label} cannot be used ({trial.state}: {trial.reason})"
        entry = _entry(shape, trial)
        if shape.sizes is not None and pads and padding is not None:
            own = padding_of(padding, traffic, shape.sizes)
            if (leak := programs.leak(trial, own)) is not None:
                return f"{policy.label}: {trial.candidate.label} does not stand padding: {leak.why}"
            guard = _between(taken_by(trial.guard, own), shape.guard, own)
            entry = msgspec.structs.replace(entry, guard=guard, padding=own)
        if shape.split is not None and padding is not None:
            entry = _cutting(entry, shape.split, padding)
        entries.append(entry)
        trials.append(trial)
    name = f"{policy.engine.engine.replace(' ', '')}-{policy.forecast.policy}-{number}"
    return Made(Arm(name, tuple(entries)), _record(name, policy, entries, trials))


def _cutting(entry: PlanEntry, rule: SplitRule, padding: Padding) -> PlanEntry:
    """The entry with calls that it answers in parts; a program for one size takes larger calls then."""
    split = SplitCalls(rows=rule.rows, min=rule.min, batch=padding.dims[0], layouts=padding.layouts)
    guard = entry.guard if entry.padding is None else taken_in_parts(entry.guard, split)
    return msgspec.structs.replace(entry, guard=guard, split=split)


def takers(entries: Sequence[PlanEntry], traffic: Traffic) -> list[Taker]:
    """Which sizes each entry takes, from its guard."""
    found = []
    for entry in entries:
        shapes = {tensor.path: tensor.shape for tensor in entry.guard.tensors}
        ranges = [_ends(shapes[dim.places[0].path][dim.places[0].dim]) for dim in traffic.dims]
        sizes = tuple(entry.candidate.sizes[dim.name] for dim in traffic.dims) if entry.candidate.sizes else None
        rule = SplitRule(rows=entry.split.rows, min=entry.split.min) if entry.split is not None else None
        found.append(Taker(sizes, tuple(low for low, _ in ranges), tuple(high for _, high in ranges), rule))
    return found


def _ends(size: int | DimRange) -> tuple[int, int]:
    return (size.min, size.max) if isinstance(size, DimRange) else (size, size)


def _program(policy: Policy, shape: ShapeEntry, programs: SizePrograms, limit_s: float) -> Trial:
    if shape.sizes is not None:
        return programs.built(policy.base.candidate, shape.sizes, limit_s)
    assert policy.base.dynamic is not None  # or no policy would use it
    return policy.base.dynamic


def single(trial: Trial, name: str, label: str) -> Made:
    """One program for all sizes that nobody forecast: what users have without compilot."""
    assert trial.guard is not None
    entry = _entry(ShapeEntry("dynamic", trial.guard, None, pads=False), trial)
    record = PolicyArm(id=name, label=label, engine=trial.candidate.settings.engine, policy=None)
    return Made(Arm(name, (entry,)), msgspec.structs.replace(record, **_costs([entry], [trial])))


def _entry(shape: ShapeEntry, trial: Trial) -> PlanEntry:
    assert trial.guard is not None
    return PlanEntry(
        name=shape.name,
        guard=trial.guard,
        candidate=trial.candidate,
        evidence=Evidence(check=trial.check.why if trial.check else ""),
        sentence="",
        artifacts=trial.artifacts,
        artifacts_dir=RunDir.artifacts_dir(trial.candidate.id),
        frozen_weights=trial.frozen_weights,
        weights_sha256=trial.weights_sha256,
        caveats=trial.check.caveats if trial.check else (),
    )


def padding_of(padding: Padding, traffic: Traffic, sizes: Sizes) -> Padding:
    """The proven padding as far as a program for these sizes goes."""
    by_place = {
        (place.path, place.dim): size for dim, size in zip(traffic.dims, sizes, strict=True) for place in dim.places
    }
    return ending_at(padding, [by_place[dim.inputs[0].path, dim.inputs[0].dim] for dim in padding.dims])


def _between(guard: Guard, taken: Guard, padding: Padding) -> Guard:
    """The guard with the sizes of the calls that the program is to serve: padded dimensions have a range."""
    lows = {tensor.path: tensor.shape for tensor in taken.tensors}
    padded = {(one.path, one.dim) for dim in padding.dims for one in dim.inputs}

    def narrowed(tensor: TensorGuard) -> TensorGuard:
        sizes = enumerate(zip(tensor.shape, lows[tensor.path], strict=True))
        shape = tuple(_range(own, low, (tensor.path, dim) in padded) for dim, (own, low) in sizes)
        return msgspec.structs.replace(tensor, shape=shape)

    return msgspec.structs.replace(guard, tensors=tuple(map(narrowed, guard.tensors)))


def _range(size: int | DimRange, wanted: int | DimRange, padded: bool) -> int | DimRange:
    if not padded or not isinstance(size, DimRange):
        return size
    low = wanted.min if isinstance(wanted, DimRange) else wanted
    return DimRange(min=min(max(low, size.min), size.max), max=size.max)


def _record(name: str, policy: Policy, entries: Sequence[PlanEntry], trials: Sequence[Trial]) -> PolicyArm:
    record = PolicyArm(
        id=name,
        label=policy.label,
        engine=policy.engine.engine,
        policy=policy.forecast.policy,
        forecast=policy.speedup,
        serves_all=policy.forecast.policy is not ShapePolicy.STATIC,
        splits=policy.forecast.split is not None,
    )
    return msgspec.structs.replace(record, **_costs(entries, trials))


def _costs(entries: Sequence[PlanEntry], trials: Sequence[Trial]) -> dict[str, object]:
    return {
        "programs": tuple(entry.name for entry in entries),
        "candidates": tuple(trial.candidate.id for trial in trials),
        "start_s": sum(t.measurement.cold_s for t in trials if t.measurement is not None),
        "size_bytes": sum(_bytes(trials)),
    }


def _bytes(trials: Sequence[Trial]) -> Iterator[int]:
    for trial in trials:
        yield sum(file.size_bytes for file in trial.artifacts)
