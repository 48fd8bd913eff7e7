"""The journal of bench/shapes.py. In: a file. Out: by case, the tune and each set of raced processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compilot.records import ProcessSamples, Race, Record
from stepping import StampedLines

COLD = 0  # the set whose compile caches are empty
ARMS = ("eager", "eager", "compile", "dynamic", "powers", "plan")  # eager twice: the machine's own noise


class Line(Record, frozen=True, kw_only=True):
    """What every line has."""

    case: str  # "bert-lengths"
    at: str = ""
    code: str = ""  # commit


class Tuned(Line, frozen=True, kw_only=True, tag="tuned"):
    """What `compilot tune --trace` chose."""

    budget: str
    wall_s: float
    problem: str = ""
    policy: str = ""
    because: str = ""
    entries: tuple[str, ...] = ()
    forecast: float | None = None  # eager over the plan, for the requests that tune replayed; None: of no policy's
    replayed: float | None = None  # what that replay gave, in fresh processes
    refused: tuple[str, ...] = ()  # why sizes were not padded


class FirstAnswers(Record, frozen=True, kw_only=True):
    """A fresh process; in the first set the compile caches are empty, in the others they are that one's."""

    first_s: float  # until the first answer
    ten_s: float  # until the tenth


class Raced(Line, frozen=True, kw_only=True, tag="raced"):
    """One set of fresh processes over the same requests."""

    process: int
    arms: tuple[str, ...]
    samples: ProcessSamples  # a round is a request
    answers: dict[str, FirstAnswers]
    recompiles: dict[str, int]  # after the warm-up
    fast_share: float | None = None  # of the plan
    lost: dict[str, str] = {}  # arm -> why it has no figures, also from the sets before


AnyLine = Tuned | Raced


class Journal(StampedLines[AnyLine]):
    """All lines."""

    def __init__(self, path: Path, code: str | None = None) -> None:
        super().__init__(path, AnyLine, code)

    def tuned(self, case: str) -> Tuned | None:
        """The case's tune that ended in a plan file."""
        found = [line for line in self.lines if isinstance(line, Tuned) and line.case == case and not line.problem]
        return found[-1] if found else None

    def raced(self, case: str) -> list[Raced]:
        """The case's sets with the same arms as the last one."""
        found = [line for line in self.lines if isinstance(line, Raced) and line.case == case]
        return [line for line in found if line.arms == found[-1].arms]

    def cold(self, case: str) -> Raced | None:
        """The case's last set with empty compile caches."""
        found = [line for line in self.lines if isinstance(line, Raced) and line.case == case and line.process == COLD]
        return found[-1] if found else None

    def lost(self, case: str) -> dict[str, str]:
        """The case's arms that could not be raced: further sets do without them."""
        found = [line for line in self.lines if isinstance(line, Raced) and line.case == case]
        return dict(found[-1].lost) if found else {}


def race_of(sets: Sequence[Raced]) -> Race:
    """All sets as one race."""
    return Race(
        arms=sets[0].arms,
        with_aa=sets[0].arms[:2] == ("eager", "eager"),
        processes=tuple(one.samples for one in sets),
        purpose="shapes",
    )
