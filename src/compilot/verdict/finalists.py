"""Who goes from the screening into the final, and from there into the confirmation?

In: trials with their paired screening samples, the race among finalists, the goal. Out: candidates, best first.
Covered: only ok ones, never eager, never the same program twice, none clearly slower than eager unless it is the only
one; a rival that the race could not tell from the chosen one; plain torch.compile as the yardstick. Not covered: the
verdict itself (decide.py), what the budget allows (tuning/budget.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from compilot.measure.stats import MIN_MARGIN, Interval, hierarchical_bootstrap, log_ratios, median
from compilot.records import Goal, Objective, Outcome, ProcessSamples, Race, State, Trial
from compilot.verdict.breakeven import total_time_s
from compilot.verdict.compare import compare
from compilot.verdict.decide import decide

FINALISTS = 3


def choose_finalists(trials: Iterable[Trial], limit: int = FINALISTS) -> list[str]:
    """Ids of the most promising candidates; the best one always, so that a verdict can be given."""
    able = [t for t in trials if t.state is State.OK and not t.candidate.is_eager and t.same_as is None]
    able = [t for t in able if not t.candidate.sizes]  # those are programs of a plan for many sizes
    ranked = sorted({t.candidate.id: t for t in able}.values(), key=_score, reverse=True)
    kept = ranked[:1] + [trial for trial in ranked[1:] if not _clearly_slower(trial)]
    return [trial.candidate.id for trial in kept[: max(1, limit)]]


def screening_ratio(trial: Trial) -> float | None:
    """Median paired speed-up over eager seen at the screening; None: there was none."""
    pairs = [pair for pair in _pairs(trial) if math.isfinite(pair)]
    return math.exp(statistics.median(pairs)) if pairs else None  # asked for often: numpy's takes fifty times as long


def best_screened(trials: Iterable[Trial]) -> float | None:
    """The best speed-up over eager that a screening has seen; None: no candidate has one."""
    able = [trial for trial in trials if trial.state is State.OK and not trial.candidate.is_eager]
    return max((ratio for trial in able if (ratio := screening_ratio(trial)) is not None), default=None)


def pick_finalists(trials: Mapping[str, Trial], goal: Goal, limit: int = FINALISTS) -> list[Trial]:
    """The fastest at the screening; for another objective than speed the best under that rule has a place too."""
    finalists = [trials[i] for i in choose_finalists(trials.values(), limit=limit)]
    special = best_under_the_rule(goal, [t for t in trials.values() if t.state is State.OK])
    if special is not None and goal.objective is Objective.MEMORY:  # first: whoever is cut, it is not this one
        return [special, *(t for t in finalists if t is not special)][:limit]
    if special is None or special in finalists:
        return finalists
    return [*finalists[: limit - 1], special]


def best_under_the_rule(goal: Goal, trials: Iterable[Trial]) -> Trial | None:
    """The least memory, or of those that looked faster the least total or the cheapest start; None: speed alone counts.

    A variant of eager that is hardly faster starts at once: the total over all calls says who is best, not the start.
    """
    able = [trial for trial in trials if not trial.candidate.is_eager]
    if goal.objective is Objective.MEMORY:
        # steady memory: a trial's peak is that of its build, which the user's process with kept artifacts never sees
        return min(able, key=lambda t: t.measurement.steady_rss_bytes if t.measurement else 0, default=None)
    faster = [t for t in able if (screening_ratio(t) or 0.0) > 1.0]
    if goal.objective is Objective.STARTUP:
        return min(faster, key=lambda t: t.measurement.cold_s if t.measurement else 0.0, default=None)
    if goal.horizon_calls is not None:
        calls = goal.horizon_calls
        return min(faster, key=lambda t: _total_s(t, calls), default=None)
    return None


def best_unraced(finalists: Sequence[Trial], goal: Goal) -> list[Trial]:
    """Whom to confirm without a race: the best under the goal's own rule, as far as the screening can tell."""
    if goal.horizon_calls is not None:
        calls = goal.horizon_calls
        return sorted(finalists, key=lambda trial: _total_s(trial, calls))[:1]
    special = best_under_the_rule(goal, finalists)
    return list(finalists[:1]) if special is None else [special]


def ranked_in_race(race: Race) -> list[str]:
    """The arms of a race but eager, fastest first; also of one in which none was shown faster."""
    eager = race.arms[0]
    ids = [i for i in race.arms if i != eager]
    return sorted(ids, key=lambda i: compare(race, i, eager).ratio, reverse=True)


def best_in_race(trials: Mapping[str, Trial], race: Race, goal: Goal) -> str:
    """Whom to confirm: the verdict's choice, the fastest where it is eager.

    Of memory a race knows nothing yet: its processes have built what they run. So the smallest one goes on, unless it
    was shown slower than eager; its figure comes from the confirmation's fresh processes.
    """
    ranked, eager = ranked_in_race(race), race.arms[0]
    if goal.objective is Objective.MEMORY:
        able = [i for i in ranked if compare(race, i, eager).outcome is not Outcome.SLOWER]
        smallest = best_under_the_rule(goal, [trials[i] for i in able])
        return smallest.candidate.id if smallest else ranked[0]
    chosen = decide(list(trials.values()), race, goal).chosen_id
    return chosen if chosen != eager else ranked[0]


def rival_of(chosen: str, race: Race) -> str | None:
    """The next best, where the race could not tell the chosen one from it."""
    rival = next((i for i in ranked_in_race(race) if i != chosen), None)
    if rival is None or compare(race, chosen, rival).outcome is Outcome.FASTER:
        return None
    return rival


def yardstick_for(chosen: Sequence[Trial], trials: Mapping[str, Trial], plain_id: str | None) -> Trial | None:
    """Plain torch.compile, where it works and is not among the chosen."""
    plain = trials.get(plain_id) if plain_id else None
    return plain if chosen and plain is not None and plain.state is State.OK and plain not in chosen else None


def _pairs(trial: Trial) -> list[float]:
    rounds = ProcessSamples(rounds=trial.screening)
    return log_ratios(Race(arms=("eager", "candidate"), with_aa=False, processes=(rounds,)), 1, 0)[0]


def _score(trial: Trial) -> float:
    """Median log ratio; a candidate without usable pairs ranks as "no faster than eager"."""
    return math.log(screening_ratio(trial) or 1.0)


def _total_s(trial: Trial, calls: int) -> float:
    """Over so many calls of one process that starts cold, by the screening."""
    own, first = [own for _, own in trial.screening], trial.measurement
    return total_time_s(calls, first.cold_s + first.import_s, median(own)) if own and first is not None else math.inf


def _clearly_slower(trial: Trial) -> bool:
    interval: Interval | None = hierarchical_bootstrap([_pairs(trial)])
    return interval is not None and interval.high < math.log(1.0 - MIN_MARGIN)
