"""The journal of bench/training.py: one line for each finished step. In: a file. Out: what it has of a model."""

from __future__ import annotations

from pathlib import Path

from compilot.records import Record
from stepping import StampedLines


class Line(Record, frozen=True, kw_only=True):
    """What every line has."""

    model: str
    at: str = ""
    code: str = ""


class Tuned(Line, frozen=True, kw_only=True, tag="tuned"):
    """A plan was made."""

    chosen: str
    sentence: str
    tried: dict[str, str]  # candidate -> state, speed-up at the screening, why


class Raced(Line, frozen=True, kw_only=True, tag="raced"):
    """One set of processes, an arm each, timed in turns."""

    number: int
    step_s: dict[str, tuple[float, ...]]  # by arm, one for each round
    first_s: dict[str, float]  # by arm: import, build, first step
    peak_rss_bytes: dict[str, int]


AnyLine = Tuned | Raced


class Journal(StampedLines[AnyLine]):
    """Lines on disk."""

    def __init__(self, path: Path, code: str | None = None) -> None:
        super().__init__(path, AnyLine, code)

    def tuned(self, model: str) -> Tuned | None:
        """The first counts: a search is not repeated until it does well."""
        return next((line for line in self.lines if isinstance(line, Tuned) and line.model == model), None)

    def raced(self, model: str) -> list[Raced]:
        """Every set of a model."""
        return [line for line in self.lines if isinstance(line, Raced) and line.model == model]
