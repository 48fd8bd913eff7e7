"""Which step of bench/regret.py comes next for a model. Pure: follows from the journal alone, and starts nothing.

In: the journal, which candidates' files are still there. Out: a step, or None where nothing is left to do. Whoever asks
again after a step was journaled gets the next one, in this process or another. Also here: who takes part in the races
(the best of the exhaustive trials that noise cannot tell from the best, and what the search chose), and who won.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from compilot.engines.eager.build import EAGER
from compilot.measure.stats import hierarchical_bootstrap
from compilot.records import Candidate, Race, State, Trial
from compilot.verdict.compare import compare_columns
from compilot.verdict.finalists import screening_ratio
from regret_journal import DIRECT, RERACE, Journal
from regret_space import MOST, Space, space


class Rules(NamedTuple):
    """How much is done."""

    most: int = MOST  # candidates of the offered space
    finalists: int = 4  # of the exhaustive trials, in the re-race
    processes: int = 3
    rerace_pairs: int = 40
    pairs: int = 160


class Look(NamedTuple):
    """Open the model, look at it and try eager."""


class Try(NamedTuple):
    """Try a candidate of the offered space."""

    stage: str
    candidate: Candidate


class Rebuild(NamedTuple):
    """Build a candidate again: its files are gone."""

    candidate: Candidate


class Search(NamedTuple):
    """Run the default search."""


class RaceSet(NamedTuple):
    """One more set of fresh processes."""

    race: str
    arms: tuple[Candidate, ...]
    process: int
    pairs: int


Step = Look | Try | Rebuild | Search | RaceSet
There = Callable[[Candidate], bool]  # whether a candidate's files are where they were made


def next_step(journal: Journal, model: str, rules: Rules, there: There = lambda candidate: True) -> Step | None:
    """What comes next; None: the model is done, or cannot be."""
    looked, searched = journal.looked(model), journal.searched(model)
    if looked is None:
        return Look()
    if looked.reason:
        return None
    if (planned := known_space(journal, model, rules).next(journal.trials(model))) is not None:
        return Try(planned.stage, planned.candidate)
    if searched is None:
        return Search()
    return None if searched.problem or chosen_lost(journal, model) else _next_race(journal, model, rules, there)


def _next_race(journal: Journal, model: str, rules: Rules, there: There) -> Step | None:
    for race, arms, pairs in ((RERACE, rerace_arms, rules.rerace_pairs), (DIRECT, direct_arms, rules.pairs)):
        wanted = arms(journal, model, rules)
        done = len(journal.race(model, race, ids(wanted)).processes)
        if wanted and done < rules.processes:
            gone = [candidate for candidate in wanted if not there(candidate)]
            return Rebuild(gone[0]) if gone else RaceSet(race, wanted, done, pairs)
    return None


def known_space(journal: Journal, model: str, rules: Rules) -> Space:
    """The offered space as far as its trials tell."""
    looked = journal.looked(model)
    assert looked is not None  # nothing is tried before
    return space(looked.diagnosis, journal.trials(model), most=rules.most)


# --------------------------------------------------------------------------------------------------------- who races


def finalists(journal: Journal, model: str, rules: Rules) -> list[Candidate]:
    """The best of the exhaustive trials, as far as the re-race has room for them."""
    return within_noise(journal, model)[: rules.finalists]


def within_noise(journal: Journal, model: str) -> list[Candidate]:
    """The candidates that the trials' few pairs cannot tell from the fastest, fastest first."""
    lost = journal.lost(model)
    able = [t for t in journal.trials(model).values() if t.state is State.OK and t.candidate.id not in lost]
    rated = sorted(((t.candidate, *_speed(t)) for t in able), key=lambda one: -one[1])
    least = rated[0][2] if rated else 0.0
    return [candidate for candidate, _, _, high in rated if high >= least]


def _speed(trial: Trial) -> tuple[float, float, float]:
    """Log speed-up over eager at the trial, and its interval; a few pairs of a hopeless one have no width."""
    ratio = screening_ratio(trial)
    if trial.candidate.is_eager or ratio is None:
        return (0.0, 0.0, 0.0) if trial.candidate.is_eager else (-math.inf, -math.inf, -math.inf)
    interval = hierarchical_bootstrap([[math.log(eager / own) for eager, own in trial.screening]])
    middle = math.log(ratio)
    return (middle, interval.low, interval.high) if interval is not None else (middle, middle, middle)


def chosen(journal: Journal, model: str) -> Candidate | None:
    """What the search chose; its twin in the exhaustive trials where that generates the same program."""
    searched = journal.searched(model)
    if searched is None or searched.problem:
        return None
    trials = journal.trials(model)
    own = trials.get(searched.chosen.id)
    if own is not None and own.state is State.OK:
        return own.candidate
    code = next((one.code for one in searched.story.tried if one.id == searched.chosen.id), None)
    same_program = [t for t in trials.values() if t.state is State.OK and code and t.code_sha256 == code]
    if own is not None and own.same_as in trials:
        same_program.append(trials[own.same_as])
    return same_program[0].candidate if same_program else searched.chosen


def chosen_lost(journal: Journal, model: str) -> str:
    """Why what the search chose could not be raced; "": it could."""
    picked = chosen(journal, model)
    return journal.lost(model).get(picked.id, "") if picked is not None else ""


def rerace_arms(journal: Journal, model: str, rules: Rules) -> tuple[Candidate, ...]:
    """The first finalist twice (A/A), the others, and the chosen one; nobody where there is nobody else to race."""
    picked = chosen(journal, model)
    field = finalists(journal, model, rules)
    if picked is not None and picked.id not in [one.id for one in field]:
        field.append(picked)
    return (field[0], *field) if len(field) > 1 else ()


def direct_arms(journal: Journal, model: str, rules: Rules) -> tuple[Candidate, ...]:
    """The re-raced best twice (A/A) and the chosen one; nobody where they are the same."""
    picked, best = chosen(journal, model), reraced_best(journal, model, rules)
    return () if picked is None or best is None or best.id == picked.id else (best, best, picked)


def reraced_best(journal: Journal, model: str, rules: Rules) -> Candidate | None:
    """Who was the fastest in the re-race; None: it is not finished. Nobody else to race: the chosen one."""
    arms = rerace_arms(journal, model, rules)
    if not arms:
        return chosen(journal, model)
    race = journal.race(model, RERACE, ids(arms))
    if len(race.processes) < rules.processes:
        return None
    over_first = [1.0, 1.0, *(compare_columns(race, column, 0).ratio for column in range(2, len(arms)))]
    return arms[max(range(len(arms)), key=over_first.__getitem__)]


def rerace(journal: Journal, model: str, rules: Rules) -> Race:
    """The re-race so far."""
    return journal.race(model, RERACE, ids(rerace_arms(journal, model, rules)))


def direct(journal: Journal, model: str, rules: Rules) -> Race:
    """The direct race so far."""
    return journal.race(model, DIRECT, ids(direct_arms(journal, model, rules)))


def ids(candidates: tuple[Candidate, ...]) -> tuple[str, ...]:
    return tuple(candidate.id for candidate in candidates)


def label_of(candidate: Candidate | None) -> str:
    if candidate is None:
        return "n/a"
    return "eager" if candidate.id == EAGER.id else candidate.label
