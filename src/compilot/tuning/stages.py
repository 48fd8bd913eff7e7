"""The stages of a run, one function each, in the order `pipeline.tune` calls them.

In: a Run, which is what the stages share. Out: what the next stage needs; whatever was seen is in the journal by then.
Covered: which candidates, how many may be tried, who races, who is confirmed, and what the budget says to each. Not
covered: setting a run up and writing its files (pipeline.py), how a stage does its work (its own folder).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from compilot.artifacts.journal import Journal
from compilot.candidates.offers import collect_offers, refine
from compilot.candidates.search import OrderedSearch, Search, plain_compile, screening_ratio
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.measure.racing import FEWEST_ROUNDS
from compilot.measure.stats import LOOKS, MIN_MARGIN, hierarchical_bootstrap, log_ratios, should_stop
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Comparison,
    Decision,
    Diagnosis,
    Measurement,
    Objective,
    Precision,
    Race,
    RaceLine,
    State,
    Trial,
    TrialLine,
    Verdict,
    WarmStartLine,
)
from compilot.records import Outcome as RaceOutcome
from compilot.trials.runner import TAIL_S, ArmLost, LocalRunner
from compilot.trials.trying import TAIL_CALLS
from compilot.tuning.budget import CONFIRM_PROCESSES, Budget, Costs, confirm_fixed_s, confirmation_s, round_s
from compilot.tuning.earlier_races import Measured
from compilot.verdict.compare import compare
from compilot.verdict.decide import choose_finalists, decide

RACE_PAIRS = 40  # the race only sorts finalists; the confirmation is what the plan quotes
CONFIRM_PAIRS = 80  # per process; a further process tells more than further pairs
MOST_CONFIRM_PROCESSES = 5
OVERRUN_SHARE = 0.25  # of the budget: what a confirmation under way may run over,
OVERRUN_S = 60.0  # and at the least this much: three sets of fresh processes, which mostly import
TAIL_SHARE_P99 = 0.15
TAIL_SHARE = 0.03  # of what is left, for the single calls of each confirmed arm
FIRST_GUESS_TRIAL_S = 15.0
FEWEST_ABLE = 2  # a single one would be chosen by its place in the order, not by its speed
WORTH_CONFIRMING = 1.1  # over eager at the screening; a short confirmation cannot tell less from noise
FINALISTS = 3


class Options(NamedTuple):
    """What the user asked for."""

    budget_s: float = 300.0
    objective: Objective = Objective.LATENCY
    horizon_calls: int | None = None
    engines: tuple[str, ...] = ()  # () means every engine found
    finalists: int = FINALISTS
    max_memory_bytes: int | None = None
    argv: tuple[str, ...] = ()
    allow_precision: tuple[Precision, ...] = ()  # lower ones that may be tried
    tolerance: float | None = None  # relative RMSE allowed to those; None: each one's default


class Run(NamedTuple):
    """What the stages of one run share."""

    runner: LocalRunner
    journal: Journal
    budget: Budget
    options: Options
    observer: Observer
    trials: dict[str, Trial]  # every finished trial, eager first
    measured: Measured = Measured()  # races of an interrupted part of this run


def make_search(run: Run, diagnosis: Diagnosis) -> Search:
    """The engines' offers in a sensible order, without what an earlier run of this journal has finished."""
    wanted = run.options.engines, diagnosis, run.options.allow_precision
    search = OrderedSearch({} if diagnosis.unjudgeable else collect_offers(*wanted), diagnosis, refine)
    search.forget(list(run.trials))
    for trial in run.trials.values():
        search.tell(trial)
    return search


def try_candidates(run: Run, search: Search) -> None:
    """Ask, try, write down, tell; until the search or the budget ends."""
    tried = len(run.trials)
    while True:
        reserve = reserve_s(run)
        if not run.budget.may_try(expected_trial_s(run), reserve - slack_s(run)) and worth_stopping(run):
            run.observer.note("the budget for trials is used; what is left is reserved for the confirmation")
            return
        jobs = search.ask(run.runner.free_slots())
        if not jobs:
            return
        for candidate in jobs:
            tried += 1
            run.observer.trying(candidate, tried, run.budget.remaining_s)
            search.tell(one_trial(run, candidate, run.budget.trial_cap_s(reserve)))


def worth_stopping(run: Run) -> bool:
    """Stop for the confirmation's sake only when there is a gain that it could show, or no time at all."""
    if run.budget.remaining_s <= 0:
        return len(run.trials) > 1  # however short the budget, one candidate is tried
    best = [run.trials[i] for i in choose_finalists(list(run.trials.values()), limit=1)]
    return any((screening_ratio(t) or 0.0) >= WORTH_CONFIRMING for t in best)


def one_trial(run: Run, candidate: Candidate, cap_s: float) -> Trial:
    """One candidate's story, in the journal as soon as it ends."""
    if registry.traits(candidate.settings.engine).compiler_at_build and (problem := compiler_problem(run)):
        reason = f"no working C++ compiler: {problem}"
        trial = Trial(candidate=candidate, state=State.INFEASIBLE, reason=reason)
    else:
        trial = run.runner.trial(candidate, known_code(run.trials), cap_s)
    record(run, trial)
    run.observer.finished(trial, screening_ratio(trial))
    keep_the_best_alive(run)
    return trial


def compiler_problem(run: Run) -> str | None:
    """Why C++ cannot be compiled here, None where it can; asked once, in a short run not before it is needed."""
    if run.runner.toolchain is None:
        run.observer.stage("trying the C++ compiler and building its shared header, once per machine")
        run.runner.prepare_toolchain()
    return run.runner.toolchain.problem if run.runner.toolchain else None


def record(run: Run, trial: Trial) -> None:
    """Into the journal at once: a crash loses nothing."""
    run.trials[trial.candidate.id] = trial
    run.journal.append(TrialLine(trial=trial, at_s=run.budget.elapsed_s))


def known_code(trials: dict[str, Trial]) -> dict[str, str]:
    """Digest of each program seen so far -> the candidate that has it."""
    return {t.code_sha256: t.candidate.id for t in trials.values() if t.code_sha256 and t.state is State.OK}


def keep_the_best_alive(run: Run) -> None:
    """Workers of the best candidates stay for the race; memory and eager's own worker set how many."""
    room = max(0, min(run.options.finalists, run.runner.workers_at_once - 2))
    best = choose_finalists(list(run.trials.values()), limit=run.options.finalists)
    run.runner.keep_only(best[:room])


def race_finalists(run: Run) -> list[Trial]:
    """Race the best candidates against each other on live workers; returns those worth confirming."""
    while True:
        try:
            return one_race(run)
        except ArmLost as lost:
            strike_out(run, lost)


def pick_finalists(run: Run) -> list[Trial]:
    """The fastest at the screening; for another objective than speed the best under that rule has a place too."""
    trials = list(run.trials.values())
    finalists = [run.trials[i] for i in choose_finalists(trials, limit=run.options.finalists)]
    special = best_under_the_rule(run.options, [t for t in trials if t.state is State.OK and not t.candidate.is_eager])
    if special is not None and run.options.objective is Objective.MEMORY:  # first: whoever is cut, it is not this one
        return [special, *(t for t in finalists if t is not special)][: run.options.finalists]
    if special is None or special in finalists:
        return finalists
    return [*finalists[: run.options.finalists - 1], special]


def best_under_the_rule(options: Options, able: Sequence[Trial]) -> Trial | None:
    """The least memory, or the cheapest start among those that looked faster; None: speed alone counts."""
    if options.objective is Objective.MEMORY:
        # steady memory: a trial's peak is that of its build, which the user's process with kept artifacts never sees
        return min(able, key=lambda t: t.measurement.steady_rss_bytes if t.measurement else 0, default=None)
    if options.objective is Objective.STARTUP or options.horizon_calls is not None:
        faster = [t for t in able if (screening_ratio(t) or 0.0) > 1.0]
        return min(faster, key=lambda t: t.measurement.cold_s if t.measurement else 0.0, default=None)
    return None


def strike_out(run: Run, lost: ArmLost) -> None:
    """A candidate that failed in a race is out, whatever its trial said."""
    trial = msgspec.structs.replace(run.trials[lost.owner], state=lost.state, reason=lost.reason)
    record(run, trial)
    run.observer.finished(trial, None)


def one_race(run: Run) -> list[Trial]:
    """One race among the finalists that are left."""
    finalists = pick_finalists(run)
    room = max(1, run.runner.workers_at_once - 1)
    if earlier := run.measured.race_of([t.candidate.id for t in finalists[:room]]):
        run.observer.note("the race among the finalists is in the journal already")
        return after_race(run, earlier)
    if len(finalists) < 2 or run.budget.remaining_s < confirm_reserve_s(run) + race_s(run):
        return with_yardstick(run, finalists[:1])
    candidates = [t.candidate for t in finalists][:room]
    looks = tuple(n for n in LOOKS if n <= RACE_PAIRS)
    race = run.runner.race(candidates, looks=looks, stop=race_is_settled, purpose="race", for_s=race_share_s(run))
    run.journal.append(RaceLine(race=race, at_s=run.budget.elapsed_s))
    run.observer.raced(race)
    return after_race(run, race)


def after_race(run: Run, race: Race) -> list[Trial]:
    """Whom to confirm, as the race came out."""
    ranked = ranked_in_race(race)
    return with_yardstick(run, with_rival(run, best_in_race(run, race, ranked), race, ranked))


def best_in_race(run: Run, race: Race, ranked: Sequence[str]) -> str:
    """Whom to confirm: the verdict's choice, the fastest where it is eager.

    Of memory a race knows nothing yet: its processes have built what they run. So the smallest one goes on, unless it
    was shown slower than eager; its figure comes from the confirmation's fresh processes.
    """
    if run.options.objective is Objective.MEMORY:
        able = [i for i in ranked if compare(race, i, EAGER.id).outcome is not RaceOutcome.SLOWER]
        smallest = best_under_the_rule(run.options, [run.trials[i] for i in able])
        return smallest.candidate.id if smallest else ranked[0]
    horizon, objective = run.options.horizon_calls, run.options.objective
    chosen = decide(list(run.trials.values()), race, horizon_calls=horizon, objective=objective).chosen_id
    return chosen if chosen != EAGER.id else ranked[0]


def ranked_in_race(race: Race) -> list[str]:
    """The arms of a race but eager, fastest first; also of one in which none was shown faster."""
    ids = [i for i in race.arms if i != EAGER.id]
    return sorted(ids, key=lambda i: compare(race, i, EAGER.id).ratio, reverse=True)


def with_rival(run: Run, chosen: str, race: Race, ranked: Sequence[str]) -> list[Trial]:
    """The chosen one, and the next best beside it where the race could not tell them apart and the budget allows."""
    first = run.trials[chosen]
    rival = next((run.trials[i] for i in ranked if i != chosen), None)
    if rival is None or compare(race, chosen, rival.candidate.id).outcome is RaceOutcome.FASTER:
        return [first]
    affordable = run.budget.remaining_s > confirm_reserve_s(run) + confirmation_s(costs(run), [rival]) / 2
    return [first, rival] if affordable and run.runner.workers_at_once >= 5 else [first]


def with_yardstick(run: Run, chosen: list[Trial]) -> list[Trial]:
    """The chosen one, and plain torch.compile beside it where that works and the budget allows."""
    plain_id = plain_compile([t.candidate for t in run.trials.values()])
    plain = run.trials.get(plain_id) if plain_id else None
    if not chosen or plain is None or plain.state is not State.OK or plain in chosen:
        return chosen
    affordable = run.budget.remaining_s > confirmation_s(costs(run), [*chosen, plain], FEWEST_ROUNDS)
    return [*chosen, plain] if affordable and run.runner.workers_at_once >= 4 else chosen


def confirm(run: Run, finalists: list[Trial]) -> tuple[Race | None, dict[str, Measurement]]:
    """Fresh processes, fresh data, the same files: what the plan quotes comes from here."""
    while finalists:
        try:
            return one_confirmation(run, finalists)
        except ArmLost as lost:
            strike_out(run, lost)
            finalists = with_yardstick(run, pick_finalists(run)[:1])
    return None, {}


def one_confirmation(run: Run, finalists: list[Trial]) -> tuple[Race, dict[str, Measurement]]:
    """The finalists in fresh processes, set after set."""
    if earlier := run.measured.confirmation_of([t.candidate.id for t in finalists]):
        run.observer.note("the confirmation is in the journal already")
        return earlier
    run.observer.stage(f"confirming {finalists[0].candidate.label} in {CONFIRM_PROCESSES} fresh processes")
    pairs = run.budget.affordable_looks(LOOKS, costs(run), finalists, CONFIRM_PAIRS)[-1]
    race, warm = run.runner.confirm(
        [t.candidate for t in finalists],
        pairs=pairs,
        enough=lambda race: confirmed_enough(run, race, finalists),
        for_s=lambda race: confirm_share_s(run, race),
        tail_s=tail_share_s(run),
    )
    run.journal.append(RaceLine(race=race, at_s=run.budget.elapsed_s))
    run.observer.raced(race)
    for candidate_id, measurements in warm.items():
        for measurement in measurements:
            run.journal.append(WarmStartLine(candidate_id=candidate_id, measurement=measurement))
    return race, {candidate_id: measurements[0] for candidate_id, measurements in warm.items()}


def explained(verdict: Verdict, diagnosis: Diagnosis, race: Race | None) -> Verdict:
    """A verdict on a model that cannot be judged, or was not confirmed in time, says so and what to do."""
    if diagnosis.unjudgeable:
        return msgspec.structs.replace(verdict, because=diagnosis.unjudgeable)
    done = len(race.processes) if race is not None else CONFIRM_PROCESSES
    if verdict.decision is Decision.USE and done < CONFIRM_PROCESSES:
        why = f"confirmed in {done} of {CONFIRM_PROCESSES} processes when the budget ended; raise --budget"
        return Verdict(
            decision=Decision.KEEP_EAGER,
            chosen_id=EAGER.id,
            because=f"{verdict.because}, but {why}",
            comparisons=verdict.comparisons,
        )
    if verdict.decision is Decision.KEEP_EAGER and any(nearly_shown(c) for c in verdict.comparisons):
        return msgspec.structs.replace(verdict, because=f"{verdict.because}; a longer --budget may tell it from noise")
    return verdict


def nearly_shown(comparison: Comparison) -> bool:
    """Faster by its whole interval, but not by more than this short race's own noise."""
    return comparison.outcome is RaceOutcome.NO_DIFFERENCE and comparison.low > 1.0


def race_is_settled(race: Race) -> bool:
    """At a look: is every arm's interval narrow? The width wanted is fixed, so that the race cannot talk itself out."""
    return should_stop(race, candidate_columns(race), MIN_MARGIN)[0]


def confirmed_enough(run: Run, race: Race, finalists: list[Trial]) -> bool:
    """At least three processes; up to five while the interval is wider than 1 % and the budget lasts."""
    done = len(race.processes)
    if done and -run.budget.remaining_s > max(OVERRUN_S, OVERRUN_SHARE * run.budget.seconds):
        return True  # not confirmed: a model too slow for this budget keeps eager
    if done < CONFIRM_PROCESSES or done >= MOST_CONFIRM_PROCESSES:
        return done >= MOST_CONFIRM_PROCESSES
    widths = [interval_half_width(race, column) for column in candidate_columns(race)[:1]]
    narrow = all(width is not None and width <= MIN_MARGIN for width in widths)
    pairs = len(race.processes[0].rounds)
    another = confirm_fixed_s(costs(run), finalists) + pairs * round_s(eager_call_s(run), len(race.arms))
    return narrow or run.budget.remaining_s < another


def interval_half_width(race: Race, column: int) -> float | None:
    """Half-width of an arm's interval against eager; None: it cannot be computed."""
    interval = hierarchical_bootstrap(log_ratios(race, column, 0))
    return None if interval is None else interval.half_width


def candidate_columns(race: Race) -> list[int]:
    """The columns of a race that are neither eager nor its A/A twin."""
    return list(range(2 if race.with_aa else 1, len(race.arms)))


# --------------------------------------------------------------------------------------------------------- the budget


def eager_call_s(run: Run) -> float:
    """One eager call, from the eager trial."""
    measurement = run.trials[EAGER.id].measurement
    calls = sorted(measurement.call_s) if measurement else []
    return calls[len(calls) // 2] if calls else 0.02


def costs(run: Run) -> Costs:
    """What the run has learned of its own pace so far."""
    return Costs(eager_call_s(run), run.runner.opened_in_s)


def tail_share_s(run: Run) -> float:
    """Time for the single calls of each confirmed arm; who wants the p99 gets as many as it needs."""
    share = TAIL_SHARE_P99 if run.options.objective is Objective.P99 else TAIL_SHARE
    longest = TAIL_S if run.options.objective is not Objective.P99 else TAIL_CALLS * 2 * eager_call_s(run)
    return min(longest, max(0.0, run.budget.remaining_s) * share)


def race_share_s(run: Run) -> float:
    """The race among finalists may use a quarter of what is left: the confirmation matters more."""
    return max(0.0, run.budget.remaining_s / 4)


def confirm_share_s(run: Run, race: Race) -> float:
    """Time for the rounds of the next set of processes: an even share of what is left."""
    return max(0.0, run.budget.remaining_s) / max(1, CONFIRM_PROCESSES - len(race.processes))


def reserve_s(run: Run) -> float:
    """What is still to come after the trials: the race, where there is somebody to race, and the confirmation."""
    racing = race_s(run) if len(choose_finalists(list(run.trials.values()), limit=2)) > 1 else 0.0
    return racing + confirm_reserve_s(run)


def confirm_reserve_s(run: Run) -> float:
    """What the confirmation of the best so far will need, with plain torch.compile beside it where that works."""
    best = [run.trials[i] for i in choose_finalists(list(run.trials.values()), limit=1)]
    plain_id = plain_compile([t.candidate for t in run.trials.values()])
    plain = [t for t in run.trials.values() if t.candidate.id == plain_id and t.state is State.OK and t not in best]
    return confirmation_s(costs(run), [*best, *plain])


def race_s(run: Run) -> float:
    """A first look at the finalists: one more eager worker, then rounds over all of them."""
    return run.runner.opened_in_s + LOOKS[0] * round_s(eager_call_s(run), run.options.finalists + 2)


def slack_s(run: Run) -> float:
    """Until two candidates have worked, trying may use what a confirmation may run over: one has no rival."""
    able = [t for t in run.trials.values() if t.state is State.OK and not t.candidate.is_eager]
    return OVERRUN_SHARE * run.budget.seconds if len(able) < FEWEST_ABLE else 0.0


def expected_trial_s(run: Run) -> float:
    """A trial takes about as long as the longest of the last three did."""
    recent = [t.wall_s for t in run.trials.values() if not t.candidate.is_eager and t.state is State.OK][-3:]
    return max(recent, default=FIRST_GUESS_TRIAL_S)
