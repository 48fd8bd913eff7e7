"""The journal of bench/engines.py: one JSON line per finished step, raw samples included.

In: a file. Out: its lines as records, and a way to append. A step that was cut off leaves no line, or half of one that
is passed over, so the bench goes on where it stopped. Journals of before arms were given the plan's settings are read
as they are. Not covered: what the samples mean (engines_table.py).
"""

from __future__ import annotations

from pathlib import Path

from compilot.records import MachineFingerprint, ProcessSamples, ProcessSettings, Race, Record
from stepping import append_line, read_lines

SCREENING, JUDGED, AGAIN = "screening", "judged", "again"  # again: the second race, after a first one below the limit
GIVEN_SCREENING = "screening-given"  # of the hand-written arms that have the plan's threads and allocator


class Begun(Record, frozen=True, kw_only=True, tag="begun"):
    """The bench was started (or went on)."""

    created: str
    argv: tuple[str, ...]


class Tuned(Record, frozen=True, kw_only=True, tag="tuned"):
    """`compilot tune` ended."""

    model: str
    ok: bool
    wall_s: float
    budget: str
    engine: str = ""  # of the plan
    label: str = ""  # of the candidate that the plan chose
    because: str = ""  # the plan's own reason, or what went wrong
    candidates_tried: int = 0
    machine: MachineFingerprint | None = None
    process: ProcessSettings = ProcessSettings()  # of the plan: what arms by hand are given in one of the columns
    source: str = ""  # the run of another bench that was taken; "": tuned here


class Built(Record, frozen=True, kw_only=True, tag="built"):
    """One arm was built and compared with eager, or failed to be, or failed later in a race."""

    model: str
    arm: str
    ok: bool
    reason: str = ""
    wall_s: float = 0.0
    error: float = 0.0  # largest difference from eager, relative to the output's largest value


class Raced(Record, frozen=True, kw_only=True, tag="raced"):
    """One set of fresh processes through its rounds."""

    model: str
    race: str  # SCREENING, GIVEN_SCREENING, JUDGED or AGAIN
    process: int
    arms: tuple[str, ...]  # in the screenings arms[0] is eager
    samples: ProcessSamples
    load: str = ""  # what was odd on the machine meanwhile
    wall_s: float = 0.0


Line = Begun | Tuned | Built | Raced


class Journal:
    """Lines on disk, and the questions that the bench asks of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = read_lines(path, Line)

    def append(self, line: Line) -> None:
        """Write one line so that it survives whatever comes next."""
        append_line(self.path, line)
        self.lines.append(line)

    def begin(self, created: str, argv: tuple[str, ...]) -> None:
        """Note how the bench was started, where that is not as the last time: a loop may start it for each step."""
        last = next((x for x in reversed(self.lines) if isinstance(x, Begun)), None)
        if last is None or last.argv != argv:
            self.append(Begun(created=created, argv=argv))

    def tuned(self, model: str) -> Tuned | None:
        """The last tune of a model."""
        return next((x for x in reversed(self.lines) if isinstance(x, Tuned) and x.model == model), None)

    def arms(self, model: str) -> dict[str, Built]:
        """The last story of each arm of a model."""
        return {x.arm: x for x in self.lines if isinstance(x, Built) and x.model == model}

    def raced(self, model: str, race: str) -> list[Raced]:
        """The sets of processes of one race, over the arms that were raced last."""
        found = [x for x in self.lines if isinstance(x, Raced) and x.model == model and x.race == race]
        return [x for x in found if x.arms == found[-1].arms]

    def race(self, model: str, race: str) -> Race | None:
        """One race as the statistics take it; None: not run yet."""
        sets = self.raced(model, race)
        if not sets:
            return None
        load = "; ".join(dict.fromkeys(s.load for s in sets if s.load))
        return Race(
            arms=sets[0].arms, with_aa=False, processes=tuple(s.samples for s in sets), purpose="bench", load=load
        )
