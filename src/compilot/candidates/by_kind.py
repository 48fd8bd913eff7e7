"""Which search a run has: it depends on the work, and that is known only when the model was looked at.

In: a search over ways to run a model and one over ways to train it. Out: one search that is the right one from `begin`
on. Not covered: what either asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.candidates.search import Search, TimeLeft, Weighing, unasked
from compilot.candidates.worth import Worth
from compilot.records import Candidate, Diagnosis, Trial


class SearchByKind:
    """Speaks as the search that fits the work."""

    def __init__(self, models: Search, trainings: Search) -> None:
        self._models, self._trainings = models, trainings
        self._own = models

    def begin(self, diagnosis: Diagnosis) -> None:
        """From here on it is known."""
        self._own = self._models if diagnosis.step is None else self._trainings
        self._own.begin(diagnosis)

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """What to try next."""
        return self._own.ask(slots, budget)

    def tell(self, trial: Trial) -> None:
        """A trial ended."""
        self._own.tell(trial)

    def unasked(self) -> Sequence[Candidate]:
        """What it would still ask for."""
        return unasked(self._own)

    def next_worth(self, budget: TimeLeft) -> Worth | None:
        """Of what it would ask for now; None: nothing."""
        return self._own.next_worth(budget) if isinstance(self._own, Weighing) else None
