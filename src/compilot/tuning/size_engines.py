"""Which engines' programs are worth measuring over a trace, and which two go together.

In: the trials of a search, what their programs for all sizes cost at the sizes of the trace. Out: the engine that is
best among changing sizes, and the best other one at one size each, with the settings that their programs are made from;
the policies that have programs of both. Not covered: what programs for one size cost (size_costs.py), whole plans
(size_arms.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from compilot.engines.compiler_options import SIZES
from compilot.engines.of_candidate import is_eager_only, traits_of
from compilot.records import Candidate, ShapeChoice, Shapes, SizeDemand, State, Trial
from compilot.tuning.size_arms import Base
from compilot.tuning.size_costs import Curves, dynamic_cost, total_of
from compilot.verdict.finalists import screening_ratio
from compilot.verdict.words import count, times

ENGINES = 2  # whose programs for one size are measured
TOGETHER = 0.15  # of the time: threads of one engine that still spin slow the other one, which no forecast knows


def bases_of(trials: Sequence[Trial]) -> list[Base]:
    """One for each engine: its fastest program for all sizes; engines that have none come last, as first tried."""
    own = [t for t in trials if not is_eager_only(t.candidate) and not t.candidate.regions and not t.candidate.sizes]
    own = [t for t in own if t.candidate.settings.options.get(SIZES) is None]
    able = sorted((t for t in own if t.state is State.OK), key=lambda t: -(screening_ratio(t) or 0.0))
    best = {t.candidate.settings.engine: t for t in reversed(able)}
    dynamic = [Base(t.candidate, t) for t in able if best[t.candidate.settings.engine] is t]
    first = {t.candidate.settings.engine: t for t in reversed(own)}
    others = [Base(t.candidate) for name, t in first.items() if name not in best and t.state is not State.TIMED_OUT]
    return [*dynamic, *others]


def ranked_over(demand: Sequence[SizeDemand], bases: Sequence[Base], found: Curves) -> list[tuple[Base, float]]:
    """Engines with the seconds of the trace in their programs for all sizes, the best first; of two engines of one
    compiler the better one. Those without such a program come last (inf): programs for one size may still serve.
    """

    def total_s(base: Base) -> float:
        cost = dynamic_cost(base.dynamic, found) if base.dynamic is not None else None
        return math.inf if cost is None else total_of(cost, demand)

    ranked, taken = list[tuple[Base, float]](), set[str]()
    for own_s, number in sorted((total_s(base), number) for number, base in enumerate(bases)):
        compilers = compilers_of(bases[number].candidate)
        if not compilers & taken:
            ranked.append((bases[number], own_s))
            taken |= compilers
    return ranked


def best_of_each(changing: Sequence[tuple[Base, float]], alone: Sequence[tuple[Base, float]]) -> list[Base]:
    """The best engine among changing sizes, and the best other one at one size each."""
    kept = [base for base, _ in changing][:1]
    for base, _ in alone:
        if len(kept) < ENGINES and not any(compilers_of(base.candidate) & compilers_of(own.candidate) for own in kept):
            kept.append(base)
    return kept


def in_process_of(one: Candidate, other: Candidate, trials: Iterable[Trial]) -> Candidate | None:
    """The candidate with the other's settings of the process, which a plan has for all its programs: itself, or the
    fastest of its engine that has them; None: there is none.
    """
    if one.process == other.process:
        return one
    own = [t for t in trials if t.state is State.OK and t.candidate.settings.engine == one.settings.engine]
    own = [t for t in own if t.candidate.process == other.process and not t.candidate.regions and not t.candidate.sizes]
    return max(own, key=lambda t: screening_ratio(t) or 0.0).candidate if own else None


def with_both_kinds(choice: ShapeChoice) -> ShapeChoice | None:
    """Of a choice the policies that have programs for one size and the one for all sizes; None: there are none."""
    eager, *others = choice.forecasts
    both = [one for one in others if one.buckets and one.uses_dynamic]
    if not both:
        return None
    best = min(both, key=lambda one: one.total_s)
    speedup, programs = times(eager.total_s / best.total_s), count(len(best.buckets), "program")
    because = choice.because if choice.chosen in both else f"{best.policy}, {programs} for one size: {speedup}"
    return msgspec.structs.replace(choice, forecasts=(eager, *both), chosen=best, because=because)


def gains(both: ShapeChoice, each: Iterable[ShapeChoice]) -> bool:
    """Whether two engines together are forecast to be so much faster than each alone that it is worth a try."""
    alone_s = min(forecast.total_s for choice in each for forecast in choice.forecasts)
    return both.chosen.total_s < alone_s * (1.0 - TOGETHER)


def is_sized(candidate: Candidate, base: Candidate) -> bool:
    """Whether it is a program for one size with these settings."""
    settings = msgspec.structs.replace(base.settings, shapes=Shapes.STATIC)
    return bool(candidate.sizes) and candidate.settings == settings and candidate.process == base.process


def compilers_of(candidate: Candidate) -> set[str]:
    """Its engine, and the one that makes files with the same compiler."""
    return {candidate.settings.engine, traits_of(candidate).ahead_of_time} - {""}
