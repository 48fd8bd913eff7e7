"""A model at several batch sizes. In: a runner that has opened a workload, trials; or a replay. Out: one race per size.

`by_batch_size`: a replay of whole plans over batch sizes, each size for itself. `at_batch_sizes`: eager and the
candidates that worked, side by side at each size, in warm processes that go from size to size. A candidate that cannot
serve a size is left out there, with its reason; where eager itself cannot, there is no race. Not covered: what the
figures mean (report/batches.py, verdict/batch_advice.py), writing them down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import BatchRaceLine, ProcessSamples, Replay, Trial
from compilot.trials.runner import ArmLost, RaceRules, Runner
from compilot.tuning.replays import CONFIRM

PAIRS = 20  # at each size: about 3 s of a race, after a second of warm-up in each process


def at_batch_sizes(
    runner: Runner, trials: Sequence[Trial], sizes: Sequence[int], *, pairs: int = PAIRS, observer: Observer
) -> Iterator[BatchRaceLine]:
    """Every size in turn; in groups where memory has no room for all candidates."""
    if sizes:
        observer.stage(f"timing batch sizes {', '.join(map(str, sizes))}")
    size = max(1, runner.capacity.workers - 1)
    groups = [list(trials[i : i + size]) for i in range(0, len(trials), size)] or [[]]
    for batch in sizes:
        for group in groups:
            yield _at_one(runner, group, batch, pairs)


def by_batch_size(replay: Replay, rows: Sequence[int]) -> Iterator[BatchRaceLine]:
    """The requests of each size in every process; rows: of each request. Of a replay that chose, eager's alone."""
    whole = replay.race
    columns = [n for n, arm in enumerate(whole.arms) if arm == EAGER.id or whole.purpose == CONFIRM]
    for batch in sorted(set(rows[: replay.requests])):
        own = [_of_size(process, rows, batch, columns) for process in whole.processes]
        race = msgspec.structs.replace(
            whole, arms=tuple(whole.arms[n] for n in columns), processes=tuple(own), purpose=f"batch {batch}"
        )
        yield BatchRaceLine(batch=batch, race=race)


def _of_size(process: ProcessSamples, rows: Sequence[int], batch: int, columns: Sequence[int]) -> ProcessSamples:
    kept = [row for row, own in zip(process.rounds, rows, strict=False) if own == batch]
    return ProcessSamples(rounds=tuple(tuple(row[n] for n in columns) for row in kept))


def _at_one(runner: Runner, trials: Sequence[Trial], batch: int, pairs: int) -> BatchRaceLine:
    rules = RaceRules((pairs,), purpose=f"batch {batch}", batch=batch)
    lost: dict[str, str] = {}
    while True:
        left = [trial for trial in trials if trial.candidate.id not in lost]
        try:
            return BatchRaceLine(batch=batch, race=runner.race(left, rules), lost=lost)
        except ArmLost as gone:
            lost[gone.owner] = gone.reason
        except EnvironmentProblem as problem:  # of eager's own process
            return BatchRaceLine(batch=batch, race=None, lost={EAGER.id: str(problem)})
