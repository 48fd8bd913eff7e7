"""How long does a night's work take on 1, 2, 8 and 64 equal nodes? Real trials, replayed on a clock of their own.

    python bench/fleet.py [--journal bench/results/regret/850f2d7b5d/journal.jsonl] [--nodes 1,2,8,64] [--json]

In: the journal of bench/regret.py (or the journal.jsonl of `compilot tune`), with how long each trial of each model
really took on one machine. Out: for each number of nodes the wall time of all trials, beside the ideal (no node ever
idle: the sum over the nodes, but never less than the longest trial). The loop is that of `tune` itself, over a runner
whose nodes take as long as the journal says; nothing is run, so a busy machine does not matter.
Three ways are shown: `spread` (what `tune --on` does: one model after another, a node asks for more as soon as its
trial ends), `rounds` (the same, but all nodes wait for the slowest of a round), `models` (what `fleet` does first: each
model on a node of its own). Not in it: opening the model on each node (side by side, once per model and node), bringing
files back, the race and the confirmation, which stay on one node: they are the same for any number of nodes.
The other half, a store of 100,000 bundles, is bench/fleet_store.py.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.rundir import RunDir
from compilot.candidates.search import TimeLeft
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, Settings, Shipment, Trial
from compilot.testing.runner import FakeRunner, Fate
from compilot.trials.runner import Job
from compilot.tuning.budget import Budget
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions
from compilot.tuning.pipeline import tune

JOURNAL = Path(__file__).parent / "results" / "regret" / "850f2d7b5d" / "journal.jsonl"
NODES = (1, 2, 8, 64)
BUDGET_S = 1e9  # replayed to the end


class Row(NamedTuple):
    """One number of nodes; seconds of all models together."""

    nodes: int
    ideal_s: float
    spread_s: float
    rounds_s: float
    models_s: float
    models_ideal_s: float


def read(path: Path) -> dict[str, list[float]]:
    """Seconds of each model's trials but eager's, in their order."""
    found: dict[str, list[float]] = {}
    with path.open() as lines:
        for line in map(json.loads, lines):
            trial = line.get("trial")
            if (
                line.get("type") in ("tried", "trial")
                and trial["candidate"]["settings"].get("engine", "eager") != "eager"
            ):
                found.setdefault(line.get("model", path.parent.name), []).append(float(trial.get("wall_s", 0.0)))
    return found


class Replay:
    """A search that asks for the recorded trials in their order."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._left = [made(number) for number in range(len(seconds))]

    def begin(self, diagnosis: Diagnosis) -> None:
        """Nothing depends on it."""

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """The next ones."""
        now, self._left = self._left[:slots], self._left[slots:]
        return now

    def tell(self, trial: Trial) -> None:
        """Nothing is learned."""


def made(number: int) -> Candidate:
    return Candidate(
        settings=Settings(engine="dynamo:replayed", options={"number": number}), label=str(number), rationale=""
    )


class ReplayRunner(FakeRunner):
    """Nodes whose trials take as long as the journal says, on the fake's clock."""

    def __init__(self, seconds: Sequence[float], nodes: int, *, rounds: bool) -> None:
        super().__init__(lambda candidate: Fate(speed=1.0, cold_s=0.0), slots=nodes, noise=0.0)
        self._seconds = seconds
        self._nodes = nodes
        self._rounds = rounds
        self._busy: list[tuple[float, int, Job]] = []  # until when; a number, so that jobs need no order
        self._count = 0
        self.began_s = self.ended_s = 0.0

    def free_slots(self) -> int:
        """Nodes with nothing to do."""
        return self._nodes - len(self._busy)

    @property
    def pending(self) -> list[str]:
        """Those under way."""
        return [job.candidate.id for _, _, job in self._busy]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin them now."""
        for job in jobs:
            self._count += 1
            took_s = 0.0 if job.candidate.is_eager else self._seconds[int(job.candidate.label)]
            heapq.heappush(self._busy, (self._now_s + took_s, self._count, job))

    def completed(self) -> Iterator[Trial]:
        """The next one that ends; in rounds, all of them."""
        while self._busy:
            until_s, _, job = heapq.heappop(self._busy)
            self._now_s = max(self._now_s, until_s)
            if job.candidate.is_eager:
                self.began_s = self._now_s
            self.ended_s = self._now_s
            now_s = self._now_s
            trial = self._trial(job, beside=False)
            self._now_s = now_s  # the fake's own samples take no time here
            yield trial
            if not self._rounds:
                return


def trials_s(seconds: Sequence[float], nodes: int, *, rounds: bool = False) -> float:
    """How long one model's trials take on so many nodes, from eager's end to the last one's."""
    runner = ReplayRunner(seconds, nodes, rounds=rounds)
    budget = Budget(BUDGET_S, clock=runner.clock)
    with tempfile.TemporaryDirectory() as folder:
        options = TuneOptions(budget_s=BUDGET_S)
        with RunJournal(RunDir.make(Path(folder)), options, budget, Observer()) as journal:
            shipment = Shipment(sys_path=(), cwd="/", target="replayed:model")
            tune(shipment, search=Replay(seconds), runner=runner, journal=journal, budget=budget)
    return runner.ended_s - runner.began_s


def ideal_s(seconds: Sequence[float], nodes: int) -> float:
    """No node is ever idle, and no trial is split."""
    return max(max(seconds, default=0.0), sum(seconds) / nodes)


def whole_models_s(totals: Sequence[float], nodes: int) -> float:
    """Each model on one node, the longest first; a free node takes the next."""
    free = [0.0] * nodes
    for total in sorted(totals, reverse=True):
        heapq.heapreplace(free, free[0] + total)
    return max(free)


def table(models: Mapping[str, Sequence[float]], nodes: Sequence[int]) -> list[Row]:
    """One row for each number of nodes."""
    totals = [sum(seconds) for seconds in models.values()]
    return [
        Row(
            nodes=number,
            ideal_s=sum(ideal_s(seconds, number) for seconds in models.values()),
            spread_s=sum(trials_s(seconds, number) for seconds in models.values()),
            rounds_s=sum(trials_s(seconds, number, rounds=True) for seconds in models.values()),
            models_s=whole_models_s(totals, number),
            models_ideal_s=ideal_s(totals, number),
        )
        for number in nodes
    ]


def shown(rows: Sequence[Row]) -> str:
    """As a table in Markdown."""
    lines = ["| nodes | ideal | spread | over ideal | rounds | each model on one node |", "|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        over = f"{row.spread_s / row.ideal_s:.2f}x"
        cells = (
            f"{row.ideal_s:.0f} s",
            f"{row.spread_s:.0f} s",
            over,
            f"{row.rounds_s:.0f} s",
            f"{row.models_s:.0f} s",
        )
        lines.append(f"| {row.nodes} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--journal", type=Path, default=JOURNAL)
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    models = read(given.journal)
    rows = table(models, [int(text) for text in given.nodes.split(",")])
    if given.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    trials = sum(map(len, models.values()))
    print(f"{trials} trials of {len(models)} models, {sum(map(sum, models.values())):.0f} s on one machine\n")
    print(shown(rows))


if __name__ == "__main__":
    main()
