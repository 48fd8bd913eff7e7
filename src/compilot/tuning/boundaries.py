"""How a chosen boundary came about. In: a verdict, trials, a diagnosis. Out: the verdict with what is to say of it.

Covered: the order in which the boundary grew and what each step brought at its screening, steps that did not pay, graph
breaks that lie outside of every region and so cost nothing any more. Not covered: repairs (repairing.py), the words
(verdict/boundary_words.py). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from compilot.candidates import promises, worth
from compilot.candidates.parts import covered, is_within, paths_of, title_of
from compilot.records import Decision, Diagnosis, Region, Trial, Verdict, WideningStep
from compilot.verdict.boundary_words import clauses
from compilot.verdict.finalists import screening_ratio

SET_OTHERWISE = "with other settings"  # a step that adds no region


def told_of_boundary(verdict: Verdict, trials: Sequence[Trial], diagnosis: Diagnosis) -> Verdict:
    """The verdict with how its boundary grew and which graph breaks it leaves outside; as it is without regions."""
    chosen = next((trial for trial in trials if trial.candidate.id == verdict.chosen_id), None)
    if verdict.decision is Decision.USE and chosen is not None and chosen.candidate.regions:
        free = free_breaks(chosen, promises.with_named_stops(diagnosis, trials))
        steps = widening(chosen, trials, diagnosis)
        verdict = msgspec.structs.replace(verdict, widening=steps, free_breaks=free)
    return msgspec.structs.replace(verdict, because="; ".join([verdict.because, *clauses(verdict)]))


def free_breaks(chosen: Trial, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Breaks that no region runs, as far as it is known who runs them."""
    inside = covered(chosen.candidate, diagnosis)
    known = [place for place in diagnosis.breaks if place.modules]
    return tuple(
        dict.fromkeys(
            place.where
            for place in known
            if not any(is_within(module, path) for module in place.modules for path in inside)
        )
    )


def widening(chosen: Trial, trials: Sequence[Trial], diagnosis: Diagnosis) -> tuple[WideningStep, ...]:
    """From the first region to the chosen boundary, then the regions that were tried on top of it."""
    chain = [_grown(chosen, trials)]
    while (before := _before(chain[0], trials)) is not None:
        chain.insert(0, before)
    steps = [WideningStep(region=_titles(chain[0].candidate.regions, diagnosis), speedup=_speedup(chain[0]))]
    steps += [_step(one, next_, diagnosis) for one, next_ in pairwise(chain)]
    if chain[-1] is not chosen:
        steps.append(_gained(SET_OTHERWISE, chain[-1], chosen))
    ends = [chain[-1], *([chosen] if chain[-1] is not chosen else [])]
    tried = [(end, trial) for end in ends for trial in trials if trial.screening and _is_wider(end, trial)]
    left = (msgspec.structs.replace(_step(end, trial, diagnosis), kept=False) for end, trial in tried)
    return (*steps, *left)


def _grown(chosen: Trial, trials: Sequence[Trial]) -> Trial:
    """The chosen boundary in the settings and the process in which it grew, if it was varied afterwards."""
    places = {region.selector for region in chosen.candidate.regions}
    alike = [t for t in trials if t.screening and {region.selector for region in t.candidate.regions} == places]
    grown = [trial for trial in alike if _before(trial, trials) is not None]
    if _before(chosen, trials) is not None:
        return chosen
    return max(grown, key=lambda trial: worth.speed(trial) or 0.0, default=chosen)


def _before(trial: Trial, trials: Sequence[Trial]) -> Trial | None:
    """The fastest boundary with one region less."""
    smaller = [other for other in trials if other.candidate.regions and other.screening and _is_wider(other, trial)]
    return max(smaller, key=lambda other: worth.speed(other) or 0.0, default=None)


def _is_wider(one: Trial, other: Trial) -> bool:
    """Whether the other is the one and a region more, in the same process."""
    before, after = promises.set_in(one.candidate), promises.set_in(other.candidate)
    return before < after and len(after) == len(before) + 1 and one.candidate.process == other.candidate.process


def _step(one: Trial, other: Trial, diagnosis: Diagnosis) -> WideningStep:
    """From a boundary to the other, which has a region more."""
    added = [region for region in other.candidate.regions if region not in one.candidate.regions]
    return _gained(_titles(added, diagnosis), one, other)


def _gained(what: str, one: Trial, other: Trial) -> WideningStep:
    return WideningStep(region=what, speedup=_speedup(other), gain=_speedup(other) / _speedup(one))


def _titles(regions: Sequence[Region], diagnosis: Diagnosis) -> str:
    return " + ".join(title_of(paths_of(region.selector, diagnosis), diagnosis.repeated) for region in regions)


def _speedup(trial: Trial) -> float:
    return screening_ratio(trial) or 1.0
