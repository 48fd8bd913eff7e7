"""Search: begin with a diagnosis, ask for the next candidates, tell how each went.

In: a diagnosis, trials. Out: candidates. Covered: the seam, and which candidate is plain torch.compile. Not covered:
what is asked for: guided.py is the search that `tune` uses, and others plug into the same three methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.records import Candidate, CompiledWay, Diagnosis, ProcessSettings, Settings, StepParts, Trial

PLAIN_STEPS = (StepParts(), StepParts(compiled=CompiledWay.MODEL))  # of a model that is called, or trained


class TimeLeft(Protocol):
    """What a search may use of the budget: what comes after it is not part of it."""

    @property
    def remaining_s(self) -> float: ...


class Search(Protocol):
    """The seam: what is tried next. Later searches (learned order, cluster) implement these three."""

    def begin(self, diagnosis: Diagnosis) -> None:
        """A run begins: what is known of the model and the machine."""

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """Up to `slots` candidates to try next; none: the search is over, or nothing fits into the time."""

    def tell(self, trial: Trial) -> None:
        """A trial ended, now or in an interrupted part of this run; its candidate is not asked for again."""


@runtime_checkable
class Foreseeing(Protocol):
    """A search that can say what it would still ask for. Others need not: then nothing is known of it."""

    def unasked(self) -> Sequence[Candidate]:
        """What it would ask for next, as far as it knows now; asking for this changes nothing."""


@runtime_checkable
class Weighing(Protocol):
    """A search that can say what its next candidate promises. Others need not: then what it asks for comes first."""

    def next_worth(self, budget: TimeLeft) -> Worth | None:
        """Gain and seconds of what it would ask for now; None: nothing. Asking for this changes nothing."""


def unasked(search: Search) -> Sequence[Candidate]:
    """What a search would still ask for; nothing where it cannot say."""
    return search.unasked() if isinstance(search, Foreseeing) else ()


def plain_compile(candidates: Sequence[Candidate]) -> str | None:
    """Id of plain torch.compile among the candidates (whatever its shapes policy), the yardstick users know."""
    for candidate in candidates:
        settings = candidate.settings
        bare = Settings(engine=settings.engine, shapes=settings.shapes)
        plain = registry.traits(settings.engine).plain_compile and candidate.step in PLAIN_STEPS
        if plain and settings == bare and candidate.process == ProcessSettings() and not candidate.regions:
            return candidate.id
    return None
