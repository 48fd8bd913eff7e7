"""Progress for other processes. In: events of a run. Out: the same events for another observer, and progress.json.

A web page beside a run (`compilot ui`) reads the file. Writing it takes tens of microseconds, and happens only where
drawing may: between steps, and between the rounds of a race once a second at the most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compilot.artifacts import progress_file
from compilot.artifacts.progress_file import Doing
from compilot.progress import Observer
from compilot.records import Candidate, Plan, Race, RunHeader, Trial, Verdict
from compilot.showing.plain import Best, pair_text

SECONDS_APART = 1.0  # of a race's rounds


@contextmanager
def noted(observer: Observer, folder: Path, budget_s: float | None = None) -> Iterator[Observer]:
    """An observer that tells this one everything, and keeps the folder's progress.json; it is gone afterwards."""
    both = NotedObserver(observer, folder, budget_s)
    try:
        yield both
    finally:
        if both.has_written:  # else it may be another run's, which refused this one
            progress_file.remove(folder)


class NotedObserver(Observer):
    """Hands every event on, and writes down what is being done."""

    def __init__(
        self,
        observer: Observer,
        folder: Path,
        budget_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer, self._folder, self._budget_s, self._clock = observer, folder, budget_s, clock
        self._begin, self._written = clock(), float("-inf")
        self._best = Best()
        self._labels: dict[str, str] = {}
        self._what, self._why = "starting", ""
        self._nodes: dict[str, str] = {}  # machine of a cluster -> what it does

    @property
    def has_written(self) -> bool:
        """Whether progress.json is this one's."""
        return self._written > float("-inf")

    def started(self, header: RunHeader, run_dir: Path) -> None:
        """Which run this is."""
        self._observer.started(header, run_dir)

    def stage(self, text: str) -> None:
        """A step of the run."""
        self._observer.stage(text)
        self._now(text)

    def note(self, text: str) -> None:
        """Something to know."""
        self._observer.note(text)

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        """A trial begins."""
        self._observer.trying(candidate, number, remaining_s)
        self._labels[candidate.id] = candidate.label
        self._now(f"trying {number}: {candidate.label}", candidate.rationale)

    def doing(self, text: str) -> None:
        """The step within the trial."""
        self._observer.doing(text)
        self._write(text)

    def at_node(self, node: str, text: str) -> None:
        """What one machine of a cluster does."""
        self._observer.at_node(node, text)
        self._nodes.pop(node, None)
        self._nodes |= {node: text} if text else {}
        self._write("; ".join(f"{name}: {words}" for name, words in self._nodes.items()))

    def finished(self, trial: Trial, ratio: float | None) -> None:
        """A trial ended."""
        self._observer.finished(trial, ratio)
        self._best.see(trial, ratio)

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """Between two rounds."""
        self._observer.racing(purpose, labels, done, planned)
        if self._clock() - self._written >= SECONDS_APART:
            arms = ", ".join(dict.fromkeys(self._labels.get(label, label) for label in labels))
            self._now(f"{purpose}: {arms}", step=pair_text(done, planned))

    def raced(self, race: Race) -> None:
        """A race ended."""
        self._observer.raced(race)

    def decided(self, verdict: Verdict, plan: Plan) -> None:
        """The plan is written."""
        self._observer.decided(verdict, plan)

    def interrupted(self, run_dir: Path) -> None:
        """Ctrl-C."""
        self._observer.interrupted(run_dir)

    def _now(self, what: str, why: str = "", step: str = "") -> None:
        self._what, self._why = what, why
        self._write(step)

    def _write(self, step: str) -> None:
        self._written = self._clock()
        progress_file.write(
            self._folder,
            Doing(
                what=self._what,
                step=step,
                why=self._why,
                elapsed_s=self._written - self._begin,
                budget_s=self._budget_s,
                best=str(self._best),
            ),
        )
