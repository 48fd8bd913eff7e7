"""The offered space of a model, in the order in which bench/regret.py tries it. Pure: starts nothing.

In: a diagnosis, the trials so far. Out: every candidate that is planned as far as it is known, the next one, and what
the cap leaves out. Stages: each engine's seeds in the engines' own order; every knob value alone on the best seed
(eager itself where no seed is faster); pairs of those values that helped at the trial, the largest sum of gains first.
What is a candidate, a knob and a gain is compilot's own (candidates/). The same trials give the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from compilot.candidates import worth
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.spaces import candidates_of, usable_engines
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Turn, turns
from compilot.records import Candidate, Diagnosis, State, Trial

MOST = 60  # candidates per model
SEEDS, SINGLES, PAIRS = "seed", "single", "pair"

Trials = Mapping[str, Trial]  # by candidate; eager's among them


class Planned(NamedTuple):
    """A candidate of the space."""

    stage: str
    candidate: Candidate


class Space(NamedTuple):
    """What is known of the space so far: a stage is planned when the one before it has been tried."""

    planned: tuple[Planned, ...]  # to be tried, in order; no more than the cap
    left_out: tuple[Planned, ...]  # by the cap
    whole: bool  # every stage is planned

    def next(self, trials: Trials) -> Planned | None:
        """The first that nobody has tried; None: all of them have been, as far as they are known."""
        return next((one for one in self.planned if one.candidate.id not in trials), None)


def space(diagnosis: Diagnosis, trials: Trials, *, most: int = MOST, engines: Sequence[str] = ()) -> Space:
    """The space of a model, as far as its trials tell; engines: none: every one that is usable here."""
    found = _once(seeds(diagnosis, engines))
    if _untried(found[:most], trials):
        return _capped(found, most, whole=False)
    base = best_seed(found[:most], trials)
    single = singles(diagnosis, base.candidate)
    found += [Planned(SINGLES, turn.candidate) for turn in single]
    if _untried(_once(found)[:most], trials):
        return _capped(found, most, whole=False)
    found += [Planned(PAIRS, candidate) for candidate in pairs(diagnosis, base, single, trials)]
    return _capped(found, most, whole=True)


def seeds(diagnosis: Diagnosis, engines: Sequence[str] = ()) -> list[Planned]:
    """Each engine's own points in the model's own precision; none of a model whose answers nobody can judge."""
    if diagnosis.unjudgeable:
        return []
    return [Planned(SEEDS, one) for name in usable_engines(engines) for one in candidates_of(name, diagnosis)]


def best_seed(found: Sequence[Planned], trials: Trials) -> Trial:
    """The fastest at the trial; eager where none is faster."""
    able = [trials[one.candidate.id] for one in found if trials[one.candidate.id].state is State.OK]
    best = max(able, key=lambda trial: worth.speed(trial) or 0.0, default=trials[EAGER.id])
    return best if (worth.speed(best) or 0.0) > 0.0 else trials[EAGER.id]


def singles(diagnosis: Diagnosis, base: Candidate) -> list[Turn]:
    """Every knob value alone, as the search itself would turn it."""
    search = GuidedSearch()
    search.begin(diagnosis)
    return turns(base, search.knobs(base))


def helped(base: Trial, single: Sequence[Turn], trials: Trials) -> list[tuple[Turn, float]]:
    """The turns that were faster than the base by more than 1 % at the trial, with their gains, the largest first."""
    tried = [turn for turn in single if turn.candidate.id in trials]
    gains = [(turn, worth.gain_over(trials[turn.candidate.id], base)) for turn in tried]
    return sorted([one for one in gains if one[1] > worth.HELPED], key=lambda one: -one[1])


def pairs(diagnosis: Diagnosis, base: Trial, single: Sequence[Turn], trials: Trials) -> list[Candidate]:
    """Two values that helped, together; those that promise the most first."""
    both = sorted(combinations(helped(base, single, trials), 2), key=lambda two: -(two[0][1] + two[1][1]))
    search = GuidedSearch()
    search.begin(diagnosis)
    found = (_together(search, first, second) for (first, _), (second, _) in both)
    return [candidate for candidate in found if candidate is not None]


def _together(search: GuidedSearch, first: Turn, second: Turn) -> Candidate | None:
    """One turned after the other, in whichever order that is possible; None: two values of one knob."""
    if first.knob == second.knob:
        return None
    for one, other in ((first, second), (second, first)):
        for turn in turns(one.candidate, search.knobs(one.candidate)):
            if (turn.knob, turn.value) == (other.knob, other.value):
                return turn.candidate
    return None


def _capped(found: Sequence[Planned], most: int, *, whole: bool) -> Space:
    once = _once(found)
    return Space(tuple(once[:most]), tuple(once[most:]), whole)


def _once(found: Sequence[Planned]) -> list[Planned]:
    """Each candidate where it comes first; a knob alone may be a seed, and the baseline is tried anyway."""
    by_id = {one.candidate.id: one for one in reversed(found) if not one.candidate.is_eager}
    return [by_id[i] for i in dict.fromkeys(one.candidate.id for one in found) if i in by_id]


def _untried(found: Sequence[Planned], trials: Trials) -> bool:
    return any(one.candidate.id not in trials for one in found)
