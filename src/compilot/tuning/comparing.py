"""Arms side by side: eager and candidates, each in processes of its own, timed in turns.

In: a runner that has opened a workload, and candidates. Out: trials, one race over sets of fresh processes, and each
arm's first calls there. Used by everyone who measures: `tune`'s confirmation, `bench`, the ahead-of-time twin, `env`.
Covered: eager first, arms that are lost in a race, groups where memory has no room for all. Not covered: what the
figures mean (verdict/), writing them down (whoever asked).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem, WorkerError
from compilot.measure.scatter import scatter
from compilot.progress import Observer
from compilot.records import Candidate, MachineLoad, Measurement, Race, State, Trial
from compilot.trials.runner import ArmLost, Job, RaceRules, Runner, SetRules, arm_ids
from compilot.verdict.busy import is_busy, noisy_note, smallest_shown
from compilot.verdict.words import NOISY


class Compared(NamedTuple):
    """Arms that were timed side by side in fresh processes."""

    race: Race
    warm: dict[str, list[Measurement]]  # first calls of each arm, one per set of processes

    @property
    def warm_starts(self) -> dict[str, Measurement]:
        """One for each arm, over all sets."""
        return {candidate_id: over_all_sets(measured) for candidate_id, measured in self.warm.items()}


def over_all_sets(measured: Sequence[Measurement]) -> Measurement:
    """The first set's, which has the single calls; start and memory are those of all sets, as every report has them.

    The start is the median. Memory is the largest: what a process must be given room for.
    """
    return msgspec.structs.replace(
        measured[0],
        cold_s=statistics.median(one.cold_s for one in measured),
        peak_rss_bytes=max(one.peak_rss_bytes for one in measured),
        steady_rss_bytes=max(one.steady_rss_bytes for one in measured),
    )


def try_one(runner: Runner, candidate: Candidate, limit_s: float) -> Trial:
    """One candidate, alone."""
    runner.submit([Job(candidate, limit_s)])
    return next(iter(runner.completed()))


def try_eager(runner: Runner, limit_s: float) -> Trial:
    """The baseline; without it there is nothing to compare with."""
    trial = try_one(runner, EAGER, limit_s)
    if trial.state is not State.OK:
        raise EnvironmentProblem(f"eager itself failed ({trial.state}): {trial.reason}.")
    return trial


def tell_scatter(eager: Trial, load: MachineLoad | None, observer: Observer) -> None:
    """Say at once that eager's own calls vary so much that little can be shown, unless the load has said as much."""
    seen = scatter(eager.measurement.call_s) if eager.measurement is not None else None
    said = smallest_shown(load) if load is not None and is_busy(load) else 1.0
    if seen is not None and seen.noise > NOISY and seen.smallest > said:
        observer.note(noisy_note(seen.smallest))


def in_fresh_processes(
    runner: Runner,
    trials: Sequence[Trial],
    *,
    enough: Callable[[Race], bool],
    rules: Callable[[Race], SetRules],
    purpose: str = "confirm",
) -> Compared:
    """Set after set of fresh processes, until `enough` says so; `rules` says how the next one is timed."""
    start = Race(arms=(), with_aa=False, processes=(), purpose=purpose)
    race, machine = start, ""
    warm: dict[str, list[Measurement]] = {}
    while not enough(race):
        one = runner.confirm(trials, rules(race))
        if race.processes and one.machine != machine:  # the other one was lost: its sets are no part of this race
            race, warm = start, {}
        machine = one.machine
        if race.processes and one.with_aa != race.with_aa:
            raise WorkerError("one set of processes had an A/A arm and another had none; they cannot be put together.")
        race = msgspec.structs.replace(
            race,
            arms=arm_ids(EAGER.id, trials, one.with_aa),
            with_aa=one.with_aa,
            processes=(*race.processes, one.samples),
            load=one.load or race.load,
            leases=(*race.leases, *one.leases),
        )
        for candidate_id, measurement in one.warm.items():
            warm.setdefault(candidate_id, []).append(measurement)
    return Compared(race, warm)


def side_by_side(runner: Runner, trials: Sequence[Trial], *, pairs: int, processes: int, purpose: str) -> Compared:
    """A fixed number of sets and pairs. Raises ArmLost."""
    return in_fresh_processes(
        runner,
        trials,
        enough=lambda race: len(race.processes) >= processes,
        rules=lambda race: first_has_the_tail(SetRules(pairs, len(race.processes), purpose=purpose)),
        purpose=purpose,
    )


def first_has_the_tail(rules: SetRules) -> SetRules:
    """Single calls are timed in the first set only: they are many."""
    return rules if rules.number == 0 else rules._replace(tail_s=0.0)


def survivors(
    runner: Runner, trials: Sequence[Trial], *, pairs: int, processes: int, purpose: str
) -> Iterator[Compared | ArmLost]:
    """All arms in one race where memory allows, else group after group; again without an arm that failed in it."""
    size = max(1, runner.capacity.workers - 1)
    groups = [list(trials[i : i + size]) for i in range(0, len(trials), size)]
    for group in groups or [[]]:  # eager alone is raced too, for its own figures
        while True:
            try:
                yield side_by_side(runner, group, pairs=pairs, processes=processes, purpose=purpose)
                break
            except ArmLost as lost:
                group = [trial for trial in group if trial.candidate.id != lost.owner]
                yield lost


def eager_against_itself(runner: Runner, pairs: int, limit_s: float) -> Race:
    """The machine's own noise: two processes of the same model."""
    try_eager(runner, limit_s)
    return runner.race([], RaceRules((pairs,), purpose="aa"))
