"""What regions promise, and what they cost: the boundary's part of the guided search.

In: what the search knows (diagnosis, settings per engine, trials). Out: candidates with regions, each with its worth.
Where an engine cannot have the whole model they promise most of what it would bring; where it can, a little speed and a
much cheaper start, which counts where starts count. A boundary grows by widening: the best one so far with one region
more promises as much per share of the time as it has brought until now, and little once a step has not paid. What
failed is not tried again with more around it. Cost: the whole model's compile by the share of what is compiled, one
instance where an engine, with what is set in it, makes one program for all that are alike, and a part of it for each
further one where only its code is the same. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates import boundary, worth
from compilot.candidates.parts import covered, overlap, paths_of, shares_by_path
from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.modules.selectors import culprit
from compilot.records import BreakPlace, Candidate, Diagnosis, Settings, State, Trial

BEFORE_WHOLE = 0.15  # of an engine's gain: first the whole model is tried, which says more; where it fits
CHEAP_START = 0.25  # of log speed-up: what a cheaper start is worth where starts count
OTHER_BOUNDARY = 0.5  # of a seed's gain once another boundary of the engine was tried
HYBRID = 0.5  # of a widening step's gain with another engine than the one that has worked
START_SHARE = 0.1  # of all calls' time in a cold start: from here on a start counts
OPEN_S = 4.0  # of a trial besides its build: opening, checking, warming up, pairing
INSTANCE_S = 0.5  # of each program: loading, guarding, its own files
FAILED = (State.WRONG, State.INFEASIBLE, State.CRASHED)
OFF = (0.3, 5.0)  # a build's time may be this far from what was expected before the guess itself is doubted


class Knows(NamedTuple):
    """What a search knows when it asks what regions promise."""

    diagnosis: Diagnosis
    settings: Mapping[str, Settings]  # by engine: what a region is begun with
    trials: Sequence[Trial]
    best: float  # log speed-up of the best so far
    horizon_calls: int | None = None
    quick_start: bool = False  # the user asked for one


class Promise(NamedTuple):
    """A candidate with regions, and what it promises."""

    candidate: Candidate
    worth: Worth


def promises(knows: Knows) -> Iterator[Promise]:
    """Every boundary that could be tried now: seeds, then variations of the best boundary so far."""
    for engine, settings in knows.settings.items():
        for number, candidate in enumerate(seeds_of(engine, settings, knows)):
            yield from _able(knows, candidate, _seed_gain(engine, candidate, number, knows))
    base = best_boundary(knows.trials)
    if base is not None:
        yield from _widened(base, knows)


def seeds_of(engine: str, settings: Settings, knows: Knows) -> list[Candidate]:
    """The boundaries that an engine begins with."""
    exports_only, lost = registry.traits(engine).whole_graph, _whole_is_lost(engine, knows)
    diagnosis = with_named_stops(knows.diagnosis, knows.trials) if exports_only else knows.diagnosis
    found = boundary.seeds(diagnosis, exports_only=exports_only, in_parts=lost)
    return [boundary.regional(seed.pieces, settings, seed.why, diagnosis) for seed in found]


def with_named_stops(diagnosis: Diagnosis, trials: Sequence[Trial]) -> Diagnosis:
    """Of like blocks, which share the code that stops an export, only those that an engine's failed export has named.

    What stops one engine's export most likely stops every other's, so that these need not find it out again.
    """
    named = [path for trial in trials if (path := _stopped_in(trial, diagnosis)) is not None]

    def narrowed(place: BreakPlace) -> BreakPlace:
        left = list(place.modules)
        for block in diagnosis.repeated:
            alike = [path for path in place.modules if path in block.paths]
            shown = [path for path in alike if overlap([path], named)]
            if len(alike) > 1 and shown:
                left = [path for path in left if path not in alike or path in shown]
        return msgspec.structs.replace(place, modules=tuple(left))

    places = [narrowed(place) if place.stops_export else place for place in diagnosis.breaks]
    return msgspec.structs.replace(diagnosis, breaks=tuple(places))


def _stopped_in(trial: Trial, diagnosis: Diagnosis) -> str | None:
    """The submodule in which an engine's export stopped; None: it did not, or did not say where."""
    path = culprit(trial.reason) if trial.state is State.INFEASIBLE else None
    if path is None:
        return None
    own = [r.settings for r in trial.candidate.regions if overlap([path], paths_of(r.selector, diagnosis))]
    settings = own or [trial.candidate.settings]
    return path if all(registry.traits(one.engine).whole_graph for one in settings) else None


def best_boundary(trials: Sequence[Trial]) -> Trial | None:
    """The fastest candidate with regions; None: none was faster than eager."""
    able = [t for t in trials if t.candidate.regions and (worth.speed(t) or 0.0) >= worth.HELPED]
    return max(able, key=lambda trial: worth.speed(trial) or 0.0, default=None)


# --------------------------------------------------------------------------------------------------------------- gains


def _seed_gain(engine: str, candidate: Candidate, number: int, knows: Knows) -> float:
    """What a boundary to begin with promises of the engine's gain."""
    share, traits = share_of(candidate, knows.diagnosis), registry.traits(engine)
    whole, own = _whole(engine, knows.trials), _regional(engine, knows)
    full = worth.first_gain(traits) * share
    if _whole_is_lost(engine, knows):
        gain = full * math.exp(-max(0.0, knows.best - full) / worth.BEHIND)
    elif any(worth.speed(trial) is not None for trial in whole):
        known = CHEAP_START if starts_count(engine, knows) else worth.SECOND_POINT
        gain = known * share * worth.behind(whole, knows.best)
    else:
        gain = full * (1.0 if starts_count(engine, knows) else BEFORE_WHOLE)
    if own:
        able = any(trial.state in (State.OK, State.PRUNED) for trial in own)
        gain *= OTHER_BOUNDARY * worth.behind(own, knows.best) if able else worth.FAILED ** len(own)
    return gain * (1.0 if number == 0 else OTHER_BOUNDARY)


def _widened(base: Trial, knows: Knows) -> Iterator[Promise]:
    """One region more, in the settings that have worked or in another engine's; one region in another engine."""
    own = [region.settings for region in base.candidate.regions]
    working = boundary.main_region(base.candidate, knows.diagnosis).settings
    others = [settings for engine, settings in knows.settings.items() if engine not in {one.engine for one in own}]
    others = [settings for settings in others if _has_worked(settings.engine, knows)]
    for settings, trust in ((working, 1.0), *((one, HYBRID) for one in others)):
        for step in boundary.wider(base.candidate, settings, knows.diagnosis):
            yield from _able(knows, step.candidate, trust * _step_gain(base, step.piece.share, knows))
    for settings in others:
        for candidate in boundary.with_other_engine(base.candidate, settings, knows.diagnosis):
            yield from _able(knows, candidate, worth.VARIATION * worth.behind([base], knows.best))


def _step_gain(base: Trial, share: float, knows: Knows) -> float:
    """As much per share of the time as the boundary has brought so far; little after a step that did not pay."""
    saved = 1.0 - math.exp(-(worth.speed(base) or 0.0))
    rate = saved / max(share_of(base.candidate, knows.diagnosis), share)
    gain = -math.log1p(-min(0.9, rate * share / (1.0 - saved)))
    paid = 1.0 if all(step >= worth.HELPED for step in steps_from(base, knows.trials)) else worth.DID_NOT_HELP
    return worth.AGAIN * gain * paid * worth.behind([base], knows.best)


def steps_from(base: Trial, trials: Sequence[Trial]) -> list[float]:
    """What one region more has brought to this boundary, each time somebody tried, in whatever process."""
    regions = set_in(base.candidate)
    bases = {t.candidate.id: t for t in (*trials, base) if set_in(t.candidate) == regions}
    return [
        worth.gain_over(trial, own)
        for own in bases.values()
        for trial in trials
        if trial.candidate.process == own.candidate.process and _one_more(own, trial)
    ]


def _one_more(base: Trial, other: Trial) -> bool:
    before, after = set_in(base.candidate), set_in(other.candidate)
    return before < after and len(after) == len(before) + 1


def set_in(candidate: Candidate) -> set[tuple[str, str]]:
    """The regions of a candidate with what is set in each."""
    return {(region.selector, repr(region.settings)) for region in candidate.regions}


def _placed_in(candidate: Candidate, diagnosis: Diagnosis) -> set[tuple[str, str]]:
    """The submodules in a candidate's regions, each with what is set in it; however the regions are named."""
    return {(path, repr(r.settings)) for r in candidate.regions for path in paths_of(r.selector, diagnosis)}


def _able(knows: Knows, candidate: Candidate, gain: float) -> Iterator[Promise]:
    """Unless it holds what has failed already: a submodule that is wrong is wrong with more around it, too."""
    failed = [t for t in knows.trials if t.candidate.regions and t.state in FAILED]
    inside = _placed_in(candidate, knows.diagnosis)
    if not any(_placed_in(trial.candidate, knows.diagnosis) <= inside for trial in failed):
        yield Promise(candidate, Worth(gain, OPEN_S + build_s(candidate, knows.diagnosis, knows.trials)))


def _whole_is_lost(engine: str, knows: Knows) -> bool:
    """Whether the engine cannot have the whole model, as far as is known."""
    whole = _whole(engine, knows.trials)
    if any(trial.state in (State.OK, State.PRUNED) for trial in whole):
        return False
    stopped = bool(knows.diagnosis.export_stops) and registry.traits(engine).whole_graph
    return stopped or any(trial.state in FAILED for trial in whole)


# --------------------------------------------------------------------------------------------------------------- costs


def build_s(candidate: Candidate, diagnosis: Diagnosis, trials: Sequence[Trial]) -> float:
    """What a candidate's first start takes, about; what this run has seen of regions corrects the guess."""
    engines = {region.settings.engine for region in candidate.regions}
    tried = [t for t in trials if t.measurement is not None and t.candidate.regions]
    alike = [t for t in tried if {region.settings.engine for region in t.candidate.regions} == engines]
    seen = [(t.measurement.cold_s, _guessed_s(t.candidate, diagnosis, trials)) for t in alike if t.measurement]
    ratios = [cold_s / guessed_s for cold_s, guessed_s in seen if guessed_s > 0.0]
    off = min(max(statistics.median(ratios[-3:]), OFF[0]), OFF[1]) if ratios else 1.0
    return off * _guessed_s(candidate, diagnosis, trials)


def _guessed_s(candidate: Candidate, diagnosis: Diagnosis, trials: Sequence[Trial]) -> float:
    """By share of the whole model's compile; one instance of all that share a program."""
    shares, seconds = shares_by_path(diagnosis), 0.0
    for region in candidate.regions:
        traits, paths = registry.traits(region.settings.engine), paths_of(region.selector, diagnosis)
        whole_s = whole_cold_s(region.settings.engine, traits, trials)
        own = [shares.get(path, 0.0) for path in paths]
        largest = max(own, default=0.0)
        if _shares_programs(region.settings):
            seconds += INSTANCE_S + whole_s * largest
        else:
            again = (sum(own) - largest) * traits.again_share
            seconds += INSTANCE_S * len(own) + whole_s * (largest + again)
    return seconds


def _shares_programs(settings: Settings) -> bool:
    """Whether like blocks get one program; not with other packages' backends, nor with some options of torch's own."""
    traits = registry.traits(settings.engine)
    apart = any(settings.options.get(name) for name in traits.unshared_options)
    return traits.through_dynamo and traits.build_cost is not BuildCost.BACKEND and not apart


def whole_cold_s(engine: str, traits: EngineTraits, trials: Sequence[Trial]) -> float:
    """What the whole model's first start takes with an engine."""
    return worth.cold_s(traits, [trial for trial in _whole(engine, trials) if trial.state is State.OK])


def starts_count(engine: str, knows: Knows) -> bool:
    """Whether the user makes so few calls that the whole model's compile is a good part of their time."""
    call_s, calls = knows.diagnosis.eager_call_s, knows.horizon_calls
    if calls is None or call_s is None:
        return knows.quick_start
    return whole_cold_s(engine, registry.traits(engine), knows.trials) >= START_SHARE * calls * call_s


def share_of(candidate: Candidate, diagnosis: Diagnosis) -> float:
    """Of an eager call: what lies in a candidate's regions."""
    shares = shares_by_path(diagnosis)
    return min(1.0, sum(shares.get(path, 0.0) for path in covered(candidate, diagnosis)))


# -------------------------------------------------------------------------------------------------------------- trials


def _whole(engine: str, trials: Sequence[Trial]) -> list[Trial]:
    told = [trial for trial in trials if not trial.candidate.is_eager and not trial.candidate.regions]
    return [trial for trial in told if trial.candidate.settings.engine == engine]


def _regional(engine: str, knows: Knows) -> list[Trial]:
    cut = [trial for trial in knows.trials if trial.candidate.regions]
    return [trial for trial in cut if boundary.main_engine(trial.candidate, knows.diagnosis) == engine]


def _has_worked(engine: str, knows: Knows) -> bool:
    return any(worth.speed(trial) is not None for trial in (*_whole(engine, knows.trials), *_regional(engine, knows)))
