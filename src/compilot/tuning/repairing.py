"""A search that also repairs: what failed is tried again without what is to blame, where that promises more.

In: a search, a diagnosis, trials. Out: candidates, the search's own or those of a repair (repair.py, repair_worth.py);
in the end the verdict with who was to blame and what that costs. A repair's next trial comes when it promises more per
second than what the search would ask for, or when the search has nothing left; a search that cannot weigh comes first.
Not covered: what a repair asks for, the words for it (verdict/boundary_words.py).
"""

from __future__ import annotations

import math

import msgspec

from compilot.candidates import promises, worth
from compilot.candidates.parts import covered, is_within, paths_of, shares_by_path
from compilot.candidates.promises import Promise
from compilot.candidates.search import Search, TimeLeft, Weighing
from compilot.engines import registry
from compilot.records import Candidate, Decision, Diagnosis, Region, Repair, State, Trial, Verdict
from compilot.tuning.repair import MODULES, OPTIONS, PASSES, option_words, passes_of, records_of, words_of
from compilot.tuning.repair_worth import next_step


class Repairing:
    """Stands before a search and speaks as one."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._diagnosis = Diagnosis()
        self._trials: dict[str, Trial] = {}
        self._under_way: set[str] = set()  # what was asked for, whether or not it has ended

    def begin(self, diagnosis: Diagnosis) -> None:
        """A run begins."""
        self._diagnosis = diagnosis
        self._search.begin(diagnosis)

    def tell(self, trial: Trial) -> None:
        """A trial ended; both learn from it, whoever asked for it."""
        self._trials[trial.candidate.id] = trial
        self._search.tell(trial)

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """What promises most now. A repair has one step at a time; other slots are the search's."""
        step = self._step(budget)
        first = [step.candidate] if step is not None and self._is_first(step, budget) else []
        others = self._search.ask(slots - len(first), budget) if slots > len(first) else []
        found = {one.id: one for one in (*first, *others)}
        if not found and step is not None:
            found = {step.candidate.id: step.candidate}
        self._under_way |= found.keys()
        return list(found.values())

    def _is_first(self, step: Promise, budget: TimeLeft) -> bool:
        """Whether it promises more than what the search would ask for; one that cannot weigh comes first."""
        if not isinstance(self._search, Weighing):
            return False
        other = self._search.next_worth(budget)
        return other is None or other.score < step.worth.score

    def _step(self, budget: TimeLeft) -> Promise | None:
        """The next trial of a repair, where it fits into the time; a training has none: its parts are tried apart."""
        if self._diagnosis.step is not None:
            return None
        trials = list(self._trials.values())
        best = max([0.0, *(worth.speed(t) or 0.0 for t in trials if not t.candidate.is_eager)])
        step = next_step(self._diagnosis, trials, best)
        if step is None or step.candidate.id in self._under_way - self._trials.keys():  # its answer comes first
            return None
        return step if step.worth.seconds < budget.remaining_s else None

    def told(self, verdict: Verdict) -> Verdict:
        """The verdict with the repairs that the chosen candidate comes from; of kept eager, whom to blame."""
        chosen = self._trials.get(verdict.chosen_id)
        if self._diagnosis.step is not None:
            return verdict
        every = records_of(self._diagnosis, list(self._trials.values()))
        if verdict.decision is not Decision.USE:
            return msgspec.structs.replace(verdict, repairs=tuple(one for one in every if _tells(one)))
        if chosen is None:
            return verdict
        own = [one for one in every if comes_from(chosen.candidate, one, self._diagnosis)]
        if not own:  # another engine's export has shown what to leave out
            shown = [one for one in every if _shown_by(chosen.candidate, one, self._diagnosis)][:1]
            own = [msgspec.structs.replace(one, carried_to=_engines(chosen.candidate)) for one in shown]
        own = [placed for one in own for placed in _placed(one, chosen.candidate, self._diagnosis)]
        own = [_priced(one, chosen, self._diagnosis) for one in own]
        return msgspec.structs.replace(verdict, repairs=tuple(own))


def _tells(repair: Repair) -> bool:
    """Whether there is something to say of it where eager is kept: who is to blame, or that time did not suffice."""
    return bool(repair.culprits) == repair.found


def comes_from(candidate: Candidate, repair: Repair, diagnosis: Diagnosis) -> bool:
    """Whether a candidate is the engine that failed, without what is to blame."""
    if repair.kind == PASSES:
        out = passes_of(repair.engine, diagnosis)
        options = {option_words(name): value == out.get(name) for name, value in candidate.settings.options.items()}
        whole = candidate.settings.engine == repair.engine and not candidate.regions and bool(repair.culprits)
        return whole and all(options.get(name, False) for name in repair.culprits)
    if repair.kind == OPTIONS:
        own = candidate.settings.engine == repair.engine and not candidate.regions
        return own and bool(repair.culprits) and words_of(candidate).isdisjoint(repair.culprits)
    taken = _paths(candidate, repair.engine, diagnosis)
    return bool(taken) and not any(is_within(one, path) for one in repair.culprits for path in taken)


def _shown_by(candidate: Candidate, repair: Repair, diagnosis: Diagnosis) -> bool:
    """Whether a candidate's engines, none of which failed itself, leave out what stopped another engine's export."""
    engines = _engines(candidate)
    exporting = [engine for engine in (*engines, repair.engine) if registry.traits(engine).whole_graph]
    alike = bool(engines) and len(exporting) == len(engines) + 1
    left_out = not any(is_within(one, path) for one in repair.culprits for path in covered(candidate, diagnosis))
    return alike and left_out and repair.state is State.INFEASIBLE and bool(repair.culprits)


def _engines(candidate: Candidate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(region.settings.engine for region in candidate.regions))


def _placed(repair: Repair, candidate: Candidate, diagnosis: Diagnosis) -> list[Repair]:
    """With the engine that has what is to blame, where that is not eager; one record for each of several engines."""
    if repair.kind != MODULES or not repair.culprits:
        return [repair]
    held: dict[str, list[str]] = {}
    for one in repair.culprits:
        holders = [r.settings.engine for r in candidate.regions if _holds(r, one, diagnosis)]
        held.setdefault(holders[0] if holders else "", []).append(one)
    if len(held) == 1:
        return [msgspec.structs.replace(repair, runs_with=next(iter(held)))]
    shares = shares_by_path(diagnosis)
    return [
        msgspec.structs.replace(
            repair,
            culprits=tuple(paths),
            runs_with=engine,
            share=min(repair.share, sum(shares.get(path, 0.0) for path in paths)),
        )
        for engine, paths in held.items()
    ]


def _holds(region: Region, path: str, diagnosis: Diagnosis) -> bool:
    return any(is_within(path, own) for own in paths_of(region.selector, diagnosis))


def _paths(candidate: Candidate, engine: str, diagnosis: Diagnosis) -> list[str]:
    """The submodules that a candidate gives to an engine."""
    own = [region for region in candidate.regions if region.settings.engine == engine]
    return [path for region in own for path in paths_of(region.selector, diagnosis)]


def _priced(repair: Repair, chosen: Trial, diagnosis: Diagnosis) -> Repair:
    """About how much faster it would be if the culprits could be had like the others; nobody times wrong answers."""
    speed, share = worth.speed(chosen) or 0.0, promises.share_of(chosen.candidate, diagnosis)
    if repair.kind in (OPTIONS, PASSES) or repair.runs_with or speed <= 0.0 or share <= 0.0:
        return repair
    left = math.exp(-speed)
    fixed = left - (1.0 - left) / share * repair.share
    return msgspec.structs.replace(repair, price=1.0 - fixed / left if fixed > 0.0 else None)
