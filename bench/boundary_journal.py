"""The journal of bench/boundary.py: one line per finished step, and what the bench asks of it.

In: a file. Out: records by case: what was seen of the model, each arm as it was built, each tune, each set of raced
processes, each life of a fresh process. A case that is begun again goes on after its last line. Not covered: which step
comes next (boundary_cases.py), what the figures mean (boundary_table.py).
"""

from __future__ import annotations

from pathlib import Path

from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Diagnosis, ProcessSamples, Race, Record, Repair, State, Trial
from stepping import StampedLines
from tune_runs import Story

EAGER_ARM, UNREPAIRED = "eager", "unrepaired"  # arms that every case, and every repair has


class Line(Record, frozen=True, kw_only=True):
    """What every line has."""

    case: str
    at: str = ""
    code: str = ""  # commit


class Looked(Line, frozen=True, kw_only=True, tag="looked"):
    """The model was opened; its arms follow from what was seen."""

    diagnosis: Diagnosis = Diagnosis()
    arms: dict[str, Candidate] = {}  # by name; eager is not among them
    absent: dict[str, str] = {}  # an arm that this model cannot have -> why
    reason: str = ""  # why nothing could be seen


class Built(Line, frozen=True, kw_only=True, tag="built"):
    """An arm's trial: built, checked, timed for a moment."""

    arm: str
    trial: Trial


class Tuned(Line, frozen=True, kw_only=True, tag="tuned"):
    """What the search chose."""

    arm: str
    words: tuple[str, ...]  # of the command, besides target and budget
    budget: str
    wall_s: float
    problem: str = ""
    chosen: Candidate = EAGER
    check: str = ""  # what the plan says of its answers
    caveats: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    failed: Candidate | None = None  # what was repaired
    story: Story = Story(tried=(), chosen="")


class Raced(Line, frozen=True, kw_only=True, tag="raced"):
    """One set of fresh processes; eager is the first two arms."""

    arms: tuple[str, ...]  # candidate ids
    process: int
    samples: ProcessSamples
    load: str = ""


class Life(Line, frozen=True, kw_only=True, tag="life"):
    """A fresh process that starts with empty caches and makes its calls."""

    arm: str
    round: int
    calls: int
    wall_s: float  # of the whole process, seen from outside
    start_s: float = 0.0  # build and first call
    call_s: float = 0.0  # of all other calls together
    compiler_runs: int = 0
    programs: int = 0
    error: float | None = None  # largest difference from eager's answer
    problem: str = ""


class Lost(Line, frozen=True, kw_only=True, tag="lost"):
    """An arm failed in a race."""

    candidate_id: str
    reason: str


AnyLine = Looked | Built | Tuned | Raced | Life | Lost


class Journal(StampedLines[AnyLine]):
    """Lines on disk."""

    def __init__(self, path: Path, code: str | None = None) -> None:
        super().__init__(path, AnyLine, code)

    def of(self, case: str) -> CaseLines:
        """Everything of one case."""
        return CaseLines([line for line in self.lines if line.case == case])


class CaseLines:
    """The lines of one case."""

    def __init__(self, lines: list[AnyLine]) -> None:
        self.lines = lines

    @property
    def looked(self) -> Looked | None:
        return next((x for x in self.lines if isinstance(x, Looked)), None)

    @property
    def built(self) -> dict[str, Trial]:
        """By arm."""
        return {x.arm: x.trial for x in self.lines if isinstance(x, Built)}

    @property
    def tuned(self) -> dict[str, Tuned]:
        """By arm; the first counts: a search is not repeated until it does well."""
        return {x.arm: x for x in reversed(self.lines) if isinstance(x, Tuned)}

    @property
    def lost(self) -> dict[str, str]:
        """By candidate."""
        return {x.candidate_id: x.reason for x in self.lines if isinstance(x, Lost)}

    def lives(self, arm: str, calls: int) -> dict[int, Life]:
        """By round; an arm has those of another one that is the same candidate, too."""
        found = self.candidates()
        same = [name for name, one in found.items() if arm in found and one.id == found[arm].id and name != arm]
        every = [x for x in self.lines if isinstance(x, Life) and x.calls == calls]
        return {x.round: x for name in (*same, arm) for x in every if x.arm == name}

    def candidates(self) -> dict[str, Candidate]:
        """Every arm that can be run, eager first: what was built, what was chosen, what was repaired."""
        arms = self.looked.arms if self.looked is not None else {}
        found = {
            EAGER_ARM: EAGER,
            **{name: arms[name] for name, trial in self.built.items() if trial.state is State.OK},
        }
        for name, tuned in sorted(self.tuned.items()):
            if not tuned.problem:
                found[name] = tuned.chosen
                if tuned.failed is not None:
                    found[UNREPAIRED] = tuned.failed
        return found

    def race(self, arms: tuple[str, ...]) -> Race:
        """The sets of processes over these candidates so far."""
        found = [x for x in self.lines if isinstance(x, Raced) and x.arms == arms]
        load = "; ".join(dict.fromkeys(x.load for x in found if x.load))
        return Race(arms=arms, with_aa=True, processes=tuple(x.samples for x in found), purpose="bench", load=load)
