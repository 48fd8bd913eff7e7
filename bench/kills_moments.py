"""The moments at which bench/kills.py ends a run, each known by what the run has said and written by then.

In: a running `compilot tune` (its run directory and what it wrote to stderr). Out: whether the moment has come. They
are found by looking, not by the clock, so that they are the same on a fast and on a slow machine; a short random wait
after some of them spreads the kills over the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """What is there of a run at one look."""

    said: str
    journal: bytes
    builds: list[str]
    names: frozenset[str]  # in the run directory

    @classmethod
    def of(cls, home: Path) -> Seen:
        """Look at a run in home/run."""
        run = home / "run"
        names = frozenset(path.name for path in run.iterdir()) if run.is_dir() else frozenset()
        said, journal, builds = (_read(path) for path in (home / "stderr", run / "journal.jsonl", home / "builds"))
        return cls(said.decode(), journal, builds.decode().split(), names)

    @property
    def torn(self) -> bool:
        """Is a line of the journal half-written?"""
        return bool(self.journal) and not self.journal.endswith(b"\n")

    def lines(self, kind: str) -> int:
        """Whole lines of a kind in the journal."""
        begin = f'{{"type":"{kind}",'.encode()
        return sum(line.startswith(begin) for line in self.journal.splitlines()[: self.whole])

    @property
    def whole(self) -> int:
        """Lines of the journal that end."""
        return self.journal.count(b"\n")

    def writing(self, name: str) -> bool:
        """Is there a half-written file that will have this name?"""
        return any(one.startswith(f".{name}.") and one.endswith(".partial") for one in self.names)


class Moment(NamedTuple):
    """When to strike: as soon as `come` is true, and up to `spread_s` later."""

    stage: str
    name: str
    come: Callable[[Seen], bool]
    spread_s: float = 0.0
    doctor: bool = False  # a run that has the doctor and the compiler's trial beside eager's start


MOMENTS = (
    Moment("start", "the command begins", lambda seen: True, 0.2),
    Moment("start", "eager's process begins", lambda seen: "starting eager" in seen.said, 1.5),
    Moment("start", "the doctor and the compiler at work", lambda seen: "starting eager" in seen.said, 6.0, True),
    Moment("start", "the journal's first line is being written", lambda seen: seen.writing("journal.jsonl")),
    Moment("start", "the journal has begun", lambda seen: seen.whole >= 1),
    Moment("eager", "eager's trial", lambda seen: "trying 1:" in seen.said, 0.5),
    Moment("build", "the first candidate's process begins", lambda seen: "trying 2:" in seen.said, 1.5),
    Moment("build", "the first candidate is being built", lambda seen: len(seen.builds) == 1, 0.8),
    Moment("trial", "the first candidate is being checked and timed", lambda seen: len(seen.builds) == 1, 2.0),
    Moment("trial", "the first candidate's line is being written", lambda seen: seen.lines("trial") == 1 and seen.torn),
    Moment("build", "the second candidate is being built", lambda seen: len(seen.builds) == 2, 0.8),
    Moment("trial", "the second candidate's line is written", lambda seen: seen.lines("trial") == 3),
    Moment("race", "the race begins", lambda seen: "race: up to" in seen.said),
    Moment("race", "in the race", lambda seen: "race: up to" in seen.said, 1.5),
    Moment("race", "the race's line is being written", lambda seen: seen.lines("trial") == 3 and seen.torn),
    Moment("confirmation", "its processes begin", lambda seen: "confirming quick" in seen.said, 2.0),
    Moment("confirmation", "its second set of processes", lambda seen: seen.said.count("confirm: up to") == 2, 1.0),
    Moment("confirmation", "its line is being written", lambda seen: seen.lines("race") == 1 and seen.torn),
    Moment("plan", "the verdict is in the journal", lambda seen: seen.lines("verdict") == 1),
    Moment("plan", "the plan is being written", lambda seen: seen.writing("plan.json")),
    Moment("plan", "the plan is written", lambda seen: "plan.json" in seen.names),
    Moment("plan", "the table is being written", lambda seen: seen.writing("trials.csv")),
)


def moments(names: tuple[str, ...]) -> Iterator[Moment]:
    """Those whose stage or name contains one of these words; all of them without words."""
    return (m for m in MOMENTS if not names or any(word in f"{m.stage}: {m.name}" for word in names))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
