"""The guided search: what promises the most for its seconds comes next, and every trial changes what promises.

In: a diagnosis, the engines' spaces, trials. Out: candidates. One pool holds all that could be tried: the first points
of engines that nobody has tried, further points, and the best two with one knob turned: what helped is so combined.
Each has an expected gain and a cost (worth.py); the best ratio is asked for, and the pool is made again after each
trial. Failures teach: an engine that cannot export the model is hardly asked for its other exports, one that is wrong
with nothing set hardly for its options, an option that made the answers wrong is not tried again where others are
right, one that changed nothing comes last. Stopping at any moment leaves the best so far.
Covered: a run that is resumed (the pool follows from its trials), a horizon of calls, lower precisions, callers, parts
of the model with engines of their own (promises.py). Earlier runs (prior.py) may change the order in which things are
asked for, and nothing else.
Not covered: deciding (verdict/).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates import boundary, promises, worth
from compilot.candidates.prior import Prior
from compilot.candidates.process import DENORMALS, MEMORY, fewer_threads_knob, threads_knob
from compilot.candidates.search import TimeLeft
from compilot.candidates.spaces import candidates_of, space_of, usable_engines
from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Knob, Turn, Value, fitting, turns
from compilot.records import Candidate, Diagnosis, Precision, ProcessSettings, Settings, State, Trial

BASES = 2  # of the best are varied
WORTH_NAMING = 0.02  # of log speed-up: what promises less is no reason to raise a budget
BASE_KNOBS = 0.02  # of log speed-up over eager that makes a candidate worth varying
NEARLY = -0.05  # where none has that much: the best is varied all the same if it is about as fast as eager


class Option(NamedTuple):
    """Something that could be tried."""

    candidate: Candidate
    worth: Worth
    order: Worth  # the same where earlier runs have nothing to say; it orders, the worth says what is asked for at all

    def merged(self, other: Option) -> Option:
        """The same candidate from another place: the better of both counts."""
        better = self if self.worth.score >= other.worth.score else other
        return better._replace(order=max(self.order, other.order, key=lambda order: order.score))


class GuidedSearch:
    """Asks for what promises most per second."""

    def __init__(
        self,
        engines: Sequence[str] = (),
        precisions: Sequence[Precision] = (),
        *,
        horizon_calls: int | None = None,
        callers: int = 1,
        prior: Prior | None = None,
        quick_start: bool = False,
    ) -> None:
        self._engines = engines  # none: every engine that is usable here
        self._precisions = precisions  # lower ones that the user allows
        self._horizon_calls = horizon_calls
        self._callers = callers  # at the same time; several share the cores, so fewer threads each may be best
        self._prior = prior or Prior()  # which expects what is usual
        self._quick_start = quick_start  # the user wants a start that is as short as possible
        self._diagnosis = Diagnosis()
        self._offers: dict[str, list[Candidate]] = {}
        self._told: dict[str, Trial] = {}
        self._asked: set[str] = set()

    def begin(self, diagnosis: Diagnosis) -> None:
        """What the engines would try; nothing for a model whose answers nobody can judge."""
        self._diagnosis = diagnosis
        if not diagnosis.unjudgeable:
            names = usable_engines(self._engines)
            self._offers = {name: candidates_of(name, diagnosis, self._precisions) for name in names}

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """The most promising ones that fit into the time; none: what promises anything was tried, or takes longer."""
        chosen = [option.candidate for option in self._fitting_ones(budget)[:slots]]
        self._asked |= {candidate.id for candidate in chosen}
        return chosen

    def next_worth(self, budget: TimeLeft) -> Worth | None:
        """Of what it would ask for now; None: nothing."""
        return next((option.worth for option in self._fitting_ones(budget)), None)

    def _fitting_ones(self, budget: TimeLeft) -> list[Option]:
        return [option for option in self.pool() if option.worth.seconds < budget.remaining_s]

    def tell(self, trial: Trial) -> None:
        """Remember how it went."""
        self._told[trial.candidate.id] = trial
        self._asked.add(trial.candidate.id)

    def unasked(self) -> list[Candidate]:
        """The engines' own points that still promise something; variations would go on for as long as there is time."""
        points = self._offered_ids | {c.id for name, s in self._begun_with().items() for c in self._boundaries(name, s)}
        own = [o for o in self.pool() if o.candidate.id in points and o.worth.gain >= WORTH_NAMING]
        return [option.candidate for option in own]

    def promising(self) -> list[Candidate]:
        """Everything that it could ask for now, variations too, the most promising first."""
        return [option.candidate for option in self.pool()]

    def pool(self) -> list[Option]:
        """Everything that could be tried now, the most promising first."""
        found: dict[str, Option] = {}
        for option in self._options():
            known = found.get(option.candidate.id)
            if option.candidate.id not in self._asked:
                found[option.candidate.id] = option if known is None else known.merged(option)
        able = [option for option in found.values() if option.worth.gain > 0.0 and self._pays_back(option)]
        return sorted(able, key=lambda option: -option.order.score)  # equal ones stay in the engines' own order

    # ------------------------------------------------------------------------------------------- what could be tried

    def _options(self) -> Iterator[Option]:
        if self._diagnosis.unjudgeable:
            return
        best = self._best()
        for name, offers in self._offers.items():
            yield from self._points(name, offers, best)
        for base in self._bases():
            yield from self._variations(base, best)
        for promise in promises.promises(self._knows()):
            yield Option(promise.candidate, promise.worth, promise.worth)

    def _points(self, name: str, offers: Sequence[Candidate], best: float) -> Iterator[Option]:
        """An engine's own points: the first promises what engines of its kind do, the others less."""
        traits, own = registry.traits(name), self._trials_of(name)
        able = worth.still_able(traits, own, bool(self._diagnosis.export_stops))
        seconds = worth.trial_s(traits, own)
        for number, candidate in enumerate(offers):
            left = able * self._unspoiled(candidate)
            if candidate.settings.precision is not Precision.AS_IS:
                usual = learned = worth.ALLOWED_PRECISION
            elif not own and number == 0:
                usual = worth.first_gain(traits)
                learned = self._prior.first_gain(name, usual)
            else:
                usual, left = self._further_gain(number, own), left * worth.behind(own, best)
                learned = self._prior.point_gain(candidate, usual)
            yield Option(candidate, Worth(usual * left, seconds), Worth(learned * left, seconds))

    def _further_gain(self, number: int, own: Sequence[Trial]) -> float:
        points = [trial for trial in own if trial.candidate.id in self._offered_ids]
        return worth.SECOND_POINT if len(points) <= 1 or number == 1 else worth.LATER_POINT

    def _variations(self, base: Trial, best: float) -> Iterator[Option]:
        """The base with one knob turned. What helped elsewhere promises most of that again; what did not, little."""
        engine = boundary.main_engine(base.candidate, self._diagnosis)
        traits, own = registry.traits(engine), self._trials_of(boundary.family(base.candidate))
        seconds, close = worth.trial_s(traits, own), worth.behind([base], best)
        seen = self._gains_seen(engine) | self._gains_seen(boundary.family(base.candidate))
        for turn in self._turns(base.candidate):
            if self._allowed(turn.candidate):
                found, left = seen.get((turn.knob, turn.value)), close * self._unspoiled(turn.candidate)
                usual = learned = worth.again(found)
                if found is None and not base.candidate.regions:  # what this run has seen itself counts for more
                    learned = self._prior.turn_gain(base.candidate, turn.candidate, usual)
                own_s = worth.start_s(turn.candidate, traits, [base]) or seconds
                yield Option(turn.candidate, Worth(usual * left, own_s), Worth(learned * left, own_s))

    def _turns(self, candidate: Candidate) -> list[Turn]:
        """The candidate with one knob turned: of the process, of its engine, of the engine in its regions."""
        found = turns(candidate, self.knobs(candidate))
        if candidate.regions:
            engine = boundary.main_engine(candidate, self._diagnosis)
            knobs = fitting(space_of(engine, self._diagnosis).knobs, self._diagnosis)
            found += boundary.region_turns(candidate, knobs, self._diagnosis)
        return found

    def knobs(self, candidate: Candidate) -> list[Knob]:
        """Everything that can be turned on a candidate: of the process and of its engine; not what is in regions."""
        in_eager = candidate.is_eager or candidate.regions
        own = () if in_eager else space_of(candidate.settings.engine, self._diagnosis).knobs
        process: tuple[Knob, ...] = (threads_knob(self._diagnosis, self._callers),)
        if candidate.is_eager:  # with one caller eager has the threads that its user gave it
            shared = self._callers > 1
            process = (fewer_threads_knob(self._diagnosis, self._callers),) if shared else ()
        return list(fitting([*process, MEMORY, *own, DENORMALS], self._diagnosis))

    def _allowed(self, candidate: Candidate) -> bool:
        return candidate.settings.precision in (Precision.AS_IS, *self._precisions)

    def _knows(self) -> promises.Knows:
        """What decides which regions promise something."""
        told, best = list(self._told.values()), self._best()
        return promises.Knows(
            self._diagnosis, self._begun_with(), told, best, self._horizon_calls, quick_start=self._quick_start
        )

    def _begun_with(self) -> dict[str, Settings]:
        """By engine, what a region is begun with: its first point, or its best one where that gives wrong answers."""
        found = {}
        for name, offers in self._offers.items():
            wrong = {t.candidate.id for t in self._trials_of(name) if t.state is State.WRONG}
            working = [t.candidate for t in self._able() if boundary.family(t.candidate) == name]
            plain = [c for c in offers if c.settings.precision is Precision.AS_IS]
            if plain and name != EAGER.settings.engine:
                found[name] = working[0].settings if plain[0].id in wrong and working else plain[0].settings
        return found

    def _boundaries(self, engine: str, settings: Settings) -> list[Candidate]:
        return promises.seeds_of(engine, settings, self._knows())

    # --------------------------------------------------------------------------------------------- what was learned

    @property
    def _offered_ids(self) -> set[str]:
        return {candidate.id for offers in self._offers.values() for candidate in offers}

    def _trials_of(self, family: str) -> list[Trial]:
        """Of an engine on the whole model, or of engines in regions; the baseline is not among them."""
        told = [trial for trial in self._told.values() if not trial.candidate.is_eager]
        return [trial for trial in told if boundary.family(trial.candidate) == family]

    def _able(self) -> list[Trial]:
        """Those with a speed, fastest first; eager itself is none of them."""
        found = [t for t in self._told.values() if worth.speed(t) is not None and not t.candidate.is_eager]
        return sorted(found, key=lambda trial: -(worth.speed(trial) or 0.0))

    def _best(self) -> float:
        """Log speed-up of the best so far, eager's own where nothing is faster."""
        return max([0.0, *(worth.speed(trial) or 0.0 for trial in self._able()[:1])])

    def _bases(self) -> list[Trial]:
        """Whom to vary: the best, the best of another engine, and eager, which costs no build, where none is better."""
        least = BASE_KNOBS if self._callers == 1 else -math.inf  # with all threads several are in each other's way
        able = [trial for trial in self._able() if (worth.speed(trial) or 0.0) >= least]
        able = able or [trial for trial in self._able()[:1] if (worth.speed(trial) or 0.0) >= NEARLY]
        first = able[:1]
        others = [t for t in able if first and boundary.family(t.candidate) != boundary.family(first[0].candidate)]
        asked = not self._engines or EAGER.settings.engine in self._engines
        eager = [t for t in self._told.values() if t.candidate.is_eager and t.state is State.OK and asked]
        return [*first, *others[: BASES - 1], *eager]

    def _gains_seen(self, engine: str) -> dict[tuple[str, Value], float]:
        """What each turn of a knob brought in this family's trials: the median over those that differ by it alone."""
        found: dict[tuple[str, Value], list[float]] = {}
        own = {t.candidate.id: t for t in (*self._trials_of(engine), *self._eager_of(engine))}
        for base in own.values():
            for turn in self._turns(base.candidate):
                if (other := own.get(turn.candidate.id)) is not None:
                    found.setdefault((turn.knob, turn.value), []).append(worth.gain_over(other, base))
        return {turn: statistics.median(gains) for turn, gains in found.items()}

    def _eager_of(self, engine: str) -> list[Trial]:
        """The baseline, as what eager's variations are compared with."""
        return [t for t in self._told.values() if t.candidate.is_eager and engine == EAGER.settings.engine]

    def _unspoiled(self, candidate: Candidate) -> float:
        """0.0 for a candidate that repeats the option that made another one wrong where others are right, 1.0 for most.

        Little is left where the engine is wrong with nothing set, but for what has made it right. Where random numbers
        are drawn that says nothing: with nothing set it draws others than eager.
        """
        own = self._trials_of(boundary.family(candidate))
        wrong, right = ([t for t in own if t.state is state] for state in (State.WRONG, State.OK))
        if not wrong:
            return 1.0
        plain, inside = any(_is_plain(trial.candidate) for trial in wrong), _settings_of_candidate(candidate)
        if right and any(_settings_of(trial) <= inside for trial in wrong if not _is_plain(trial.candidate)):
            return 0.0
        judged_alike = candidate.settings.precision is Precision.AS_IS and not self._diagnosis.stochastic
        righted = any(_settings_of(trial) <= inside for trial in right)
        return worth.DID_NOT_HELP if plain and judged_alike and not righted else 1.0

    def _pays_back(self, option: Option) -> bool:
        candidate, engine = option.candidate, boundary.family(option.candidate)
        if self._horizon_calls is None:
            return True
        if candidate.process != EAGER.process and engine == EAGER.settings.engine:
            return True  # nothing is built
        cold = worth.cold_s(registry.traits(engine), self._trials_of(engine))
        if candidate.regions:
            cold = promises.build_s(candidate, self._diagnosis, list(self._told.values()))
        call_s = self._diagnosis.eager_call_s
        return worth.pays_back(cold, call_s, self._best(), option.worth.gain, self._horizon_calls)


def _is_plain(candidate: Candidate) -> bool:
    """Whether it is an engine on the whole model with nothing set."""
    settings = candidate.settings
    unset = settings == Settings(engine=settings.engine, shapes=settings.shapes)
    return unset and not candidate.regions and candidate.process == ProcessSettings()


def _settings_of(trial: Trial) -> set[tuple[str, str]]:
    return _settings_of_candidate(trial.candidate)


def _settings_of_candidate(candidate: Candidate) -> set[tuple[str, str]]:
    """What is set in it, each as a name and a value."""
    settings, process = candidate.settings, msgspec.to_builtins(candidate.process)
    plain = {"mode": settings.mode, "memory_format": settings.memory_format, "precision": settings.precision}
    found = {**plain, **{f"options.{k}": v for k, v in settings.options.items()}, **process}
    return {(name, repr(value)) for name, value in found.items()} | promises.set_in(candidate)
