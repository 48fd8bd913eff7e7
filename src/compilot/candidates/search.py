"""Search: ask for the next candidate, tell how it went. In: offers by engine, trials. Out: candidates and finalists.

Covered: an ordered search that tries cheap engines early, takes turns between engines, and follows up on the best one
so far with process settings and its engine's own options. Not covered: learning from earlier runs; it plugs into the
same two methods.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.traits import BuildCost
from compilot.records import Candidate, Diagnosis, ProcessSettings, Settings, State, Trial

FOLLOW_UP_AFTER = 4  # candidates tried before the best one is varied
QUICK_TRIAL_S = 10.0  # variations of a candidate that takes no longer come next, others when everything was tried
WORTH_FOLLOWING = 1.05  # screening speed-up over eager from which a candidate is worth varying


class Search(Protocol):
    """The seam: later searches (learned order, cluster) implement these."""

    def ask(self, slots: int) -> list[Candidate]:
        """Up to `slots` candidates to try next; none: the search is over."""

    def tell(self, trial: Trial) -> None:
        """A trial ended."""


def screening_ratio(trial: Trial) -> float | None:
    """Median paired speed-up over eager seen at the screening; None: there was none."""
    pairs = [(eager, mine) for eager, mine in trial.screening if eager > 0 and mine > 0]
    if not pairs:
        return None
    return math.exp(statistics.median(math.log(eager / mine) for eager, mine in pairs))


class OrderedSearch:
    """Engines take turns, cheap ones first; within an engine its own order; then variations of the best."""

    def __init__(
        self,
        offers: Mapping[str, Sequence[Candidate]],
        diagnosis: Diagnosis,
        refine: Callable[[Candidate, Diagnosis], Sequence[Candidate]] = lambda best, diagnosis: (),
    ) -> None:
        self._queue = interleave(offers, broken=bool(diagnosis.export_stops))
        self._diagnosis = diagnosis
        self._refine = refine
        self._known = {candidate.id for candidate in self._queue}
        self._told: list[Trial] = []
        self._followed: set[str] = set()  # ids of candidates that were varied, "" for eager itself
        self._varied: set[str] = set()  # ids of their variations

    def ask(self, slots: int) -> list[Candidate]:
        """The next candidates in order; variations of the best so far once a few are known."""
        if len(self._told) >= FOLLOW_UP_AFTER or not self._queue:
            self._follow_up(self._best())
        batch, self._queue = self._queue[:slots], self._queue[slots:]
        return batch

    def tell(self, trial: Trial) -> None:
        """Remember how it went."""
        self._told.append(trial)

    def forget(self, tried: Sequence[str]) -> None:
        """Do not ask for candidates that an earlier run of this journal has finished."""
        self._queue = [c for c in self._queue if c.id not in set(tried)]
        self._known |= set(tried)

    def _follow_up(self, best: Trial | None) -> None:
        """Once early on the best so far, if that is quick, and once on the best of all."""
        quick = best is not None and best.wall_s <= QUICK_TRIAL_S and not self._followed
        key = best.candidate.id if best is not None else ""
        if key in self._followed or (self._queue and not quick):
            return
        self._followed.add(key)
        found = [c for c in self._variations(best.candidate if best else None) if c.id not in self._known]
        self._varied |= {c.id for c in found}
        self._known |= self._varied
        self._queue = found + self._queue

    def _variations(self, best: Candidate | None) -> list[Candidate]:
        """Threads matter most, then the engine's own options; denormals last, and only where there are any."""
        if best is None:  # nothing was faster; denormals may be what slows eager down
            return denormal_variations(EAGER, self._diagnosis)
        found = [*thread_variations(best, self._diagnosis), *self._refine(best, self._diagnosis)]
        return [*found, *denormal_variations(best, self._diagnosis)]

    def _best(self) -> Trial | None:
        """The fastest that is no variation itself; None: nothing was worth following."""
        able = [t for t in self._told if t.state is State.OK and t.candidate.id not in self._varied]
        plain = [t for t in able if t.candidate.process == ProcessSettings()]
        worth = [t for t in plain if (screening_ratio(t) or 0.0) >= WORTH_FOLLOWING]
        return max(worth, key=lambda t: screening_ratio(t) or 0.0, default=None)


def interleave(offers: Mapping[str, Sequence[Candidate]], *, broken: bool = False) -> list[Candidate]:
    """One candidate of each engine in turn, cheap engines first; duplicates by id are dropped.

    broken: something in the model stops an export. Engines that need the model as one graph then come after the others,
    but before other packages' backends: most likely they cannot export it at all.
    """
    traits = {name: registry.traits(name) for name in offers}
    names = sorted(offers, key=lambda name: (traits[name].build_cost, name))
    backends = [name for name in names if traits[name].build_cost is BuildCost.BACKEND]
    late = [name for name in names if broken and traits[name].whole_graph and name not in backends]
    early = [name for name in names if name not in (*late, *backends)]
    order = [*_turns(offers, early), *_turns(offers, late)]
    order += [candidate for name in backends for candidate in offers[name]]
    unique: dict[str, Candidate] = {}
    for candidate in order:
        unique.setdefault(candidate.id, candidate)
    return list(unique.values())


def _turns(offers: Mapping[str, Sequence[Candidate]], names: Sequence[str]) -> list[Candidate]:
    turns = range(max((len(offers[name]) for name in names), default=0))
    return [candidate for turn in turns for name in names for candidate in offers[name][turn : turn + 1]]


def thread_variations(best: Candidate, diagnosis: Diagnosis) -> list[Candidate]:
    """The best candidate with other thread counts: one, and half the cores where that is more."""
    counts = sorted({1, diagnosis.cores // 2, diagnosis.cores} - {diagnosis.threads, 0})
    return [
        msgspec.structs.replace(
            best,
            label=f"{best.label}, {n} thread{'s' if n > 1 else ''}",
            rationale=f"the best so far with {n} of {diagnosis.cores} cores: less waiting of threads for each other",
            process=ProcessSettings(threads=n),
        )
        for n in counts
    ]


def denormal_variations(best: Candidate, diagnosis: Diagnosis) -> list[Candidate]:
    """The best candidate with denormal numbers taken as zero, where the model meets any."""
    if not diagnosis.denormals:
        return []
    why = "the model meets numbers too small to be normal, which many CPUs compute far more slowly"
    process = msgspec.structs.replace(best.process, flush_denormals=True)
    return [msgspec.structs.replace(best, label=f"{best.label}, denormals as zero", rationale=why, process=process)]


def plain_compile(candidates: Sequence[Candidate]) -> str | None:
    """Id of plain torch.compile among the candidates (whatever its shapes policy), the yardstick users know."""
    for candidate in candidates:
        settings = candidate.settings
        bare = Settings(engine=settings.engine, shapes=settings.shapes)
        plain = registry.traits(settings.engine).plain_compile
        if plain and settings == bare and candidate.process == ProcessSettings() and not candidate.regions:
            return candidate.id
    return None
