"""Search: begin with a diagnosis, ask for the next candidates, tell how each went.

In: a diagnosis, trials. Out: candidates. Covered: an ordered search over the engines' spaces: it tries cheap engines
early, takes turns between engines, and follows up on the best one so far with knobs of the process and of its engine.
Not covered: learning from earlier runs; it plugs into the same three methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from compilot.candidates.process import DENORMALS, MEMORY, fewer_threads_knob, threads_knob
from compilot.candidates.spaces import candidates_of, space_of, usable_engines
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import fitting, varied
from compilot.engines.traits import BuildCost
from compilot.records import Candidate, Diagnosis, Precision, ProcessSettings, Settings, State, Trial
from compilot.verdict.finalists import screening_ratio

FOLLOW_UP_AFTER = 4  # candidates tried before the best one is varied
QUICK_TRIAL_S = 10.0  # variations of a candidate that takes no longer come next, others when everything was tried
WORTH_FOLLOWING = 1.05  # screening speed-up over eager from which a candidate is worth varying


class TimeLeft(Protocol):
    """What a search may know of the budget."""

    @property
    def remaining_s(self) -> float: ...


class Search(Protocol):
    """The seam: what is tried next. Later searches (learned order, cluster) implement these three."""

    def begin(self, diagnosis: Diagnosis) -> None:
        """A run begins: what is known of the model and the machine."""

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """Up to `slots` candidates to try next; none: the search is over."""

    def tell(self, trial: Trial) -> None:
        """A trial ended, now or in an interrupted part of this run; its candidate is not asked for again."""


@runtime_checkable
class Foreseeing(Protocol):
    """A search that can say what it would still ask for. Others need not: then nothing is known of it."""

    def unasked(self) -> Sequence[Candidate]:
        """What it would ask for next, as far as it knows now; asking for this changes nothing."""


def unasked(search: Search) -> Sequence[Candidate]:
    """What a search would still ask for; nothing where it cannot say."""
    return search.unasked() if isinstance(search, Foreseeing) else ()


class OrderedSearch:
    """Engines take turns, cheap ones first; within an engine its own order; then variations of the best."""

    def __init__(self, engines: Sequence[str] = (), precisions: Sequence[Precision] = (), *, callers: int = 1) -> None:
        self._engines = engines  # none: every engine that is usable here
        self._precisions = precisions  # lower ones that the user allows
        self._callers = callers  # at the same time; several share the cores, so fewer threads each may be best
        self._diagnosis = Diagnosis()
        self._queue: list[Candidate] = []
        self._known: set[str] = set()  # ids of candidates that were queued or told
        self._told: list[Trial] = []
        self._followed: set[str] = set()  # ids of candidates that were varied, "" for eager itself
        self._varied: set[str] = set()  # ids of their variations

    def begin(self, diagnosis: Diagnosis) -> None:
        """Queue what the engines would try; nothing for a model whose answers nobody can judge."""
        self._diagnosis = diagnosis
        if not diagnosis.unjudgeable:
            names = usable_engines(self._engines)
            offers = {name: candidates_of(name, diagnosis, self._precisions) for name in names}
            self._queue = [*self._eager_shared(), *interleave(offers, broken=bool(diagnosis.export_stops))]
            self._known = {candidate.id for candidate in self._queue}

    def _eager_shared(self) -> list[Candidate]:
        """Under several callers: eager with fewer threads each. Nothing to build, and often the one to beat."""
        if self._callers == 1 or (self._engines and EAGER.settings.engine not in self._engines):
            return []
        return varied(EAGER, [fewer_threads_knob(self._diagnosis, self._callers)])

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """The next candidates in order, whatever the time; variations of the best so far once a few are known."""
        if len(self._told) >= FOLLOW_UP_AFTER or not self._queue:
            self._follow_up(self._best())
        batch, self._queue = self._queue[:slots], self._queue[slots:]
        return batch

    def unasked(self) -> list[Candidate]:
        """The rest of the queue, and the variations of the best so far that nobody has asked for."""
        return [*self._queue, *self._new_variations(self._best())]

    def tell(self, trial: Trial) -> None:
        """Remember how it went; what nobody here asked for was a variation of an interrupted part of the run."""
        if trial.candidate.id not in self._known and not trial.candidate.is_eager:
            self._varied.add(trial.candidate.id)
        self._told.append(trial)
        self._known.add(trial.candidate.id)
        self._queue = [candidate for candidate in self._queue if candidate.id != trial.candidate.id]

    def _follow_up(self, best: Trial | None) -> None:
        """Once early on the best so far, if that is quick, and once on the best of all."""
        quick = best is not None and best.wall_s <= QUICK_TRIAL_S and not self._followed
        if self._queue and not quick:
            return
        found = self._new_variations(best)
        self._followed.add(_key(best))
        self._varied |= {c.id for c in found}
        self._known |= self._varied
        self._queue = found + self._queue

    def _new_variations(self, best: Trial | None) -> list[Candidate]:
        """Of one that was not varied yet: those that are not known."""
        if _key(best) in self._followed:
            return []
        return [c for c in self._variations(best.candidate if best else None) if c.id not in self._known]

    def _variations(self, best: Candidate | None) -> list[Candidate]:
        """Threads and memory matter most, then the engine's own knobs; denormals last, where there are any."""
        if self._diagnosis.unjudgeable:
            return []
        if best is None:  # nothing was faster; memory or denormals may be what slows eager down
            return varied(EAGER, fitting([MEMORY, DENORMALS], self._diagnosis))
        own = space_of(best.settings.engine, self._diagnosis).knobs
        knobs = fitting([threads_knob(self._diagnosis, self._callers), MEMORY, *own, DENORMALS], self._diagnosis)
        allowed = (Precision.AS_IS, *self._precisions)
        return [c for c in varied(best, knobs) if c.settings.precision in allowed]

    def _best(self) -> Trial | None:
        """The fastest that is no variation itself; None: nothing was worth following."""
        able = [t for t in self._told if t.state is State.OK and t.candidate.id not in self._varied]
        plain = [t for t in able if t.candidate.process == ProcessSettings()]
        least = WORTH_FOLLOWING if self._callers == 1 else 0.0  # with all threads it may be in its own way
        worth = [t for t in plain if (ratio := screening_ratio(t)) is not None and ratio >= least]
        return max(worth, key=lambda t: screening_ratio(t) or 0.0, default=None)


def _key(best: Trial | None) -> str:
    """What a variation is remembered by: the candidate that it is of, "" for eager itself."""
    return best.candidate.id if best is not None else ""


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


def plain_compile(candidates: Sequence[Candidate]) -> str | None:
    """Id of plain torch.compile among the candidates (whatever its shapes policy), the yardstick users know."""
    for candidate in candidates:
        settings = candidate.settings
        bare = Settings(engine=settings.engine, shapes=settings.shapes)
        plain = registry.traits(settings.engine).plain_compile
        if plain and settings == bare and candidate.process == ProcessSettings() and not candidate.regions:
            return candidate.id
    return None
