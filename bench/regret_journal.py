"""The journal of bench/regret.py: one JSON line per finished step, with the code that made it.

In: a file. Out: its lines as records, the questions that the bench asks of them, and a way to append. Trials are kept
without what only a plan needs (files, guard, single calls). Not covered: which step comes next (regret_steps.py), what
the figures mean (regret_table.py).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.records import (
    Candidate,
    Diagnosis,
    MachineFingerprint,
    ProcessSamples,
    Race,
    Record,
    Trial,
)
from stepping import StampedLines
from tune_runs import Story

RERACE, DIRECT = "re-race", "direct"


class Line(Record, frozen=True, kw_only=True):
    """What every line has."""

    at: str = ""
    code: str = ""  # commit of the code that ran the step


class Begun(Line, frozen=True, kw_only=True, tag="begun"):
    """The bench was started, or went on."""

    argv: tuple[str, ...]
    machine: MachineFingerprint


class Looked(Line, frozen=True, kw_only=True, tag="looked"):
    """A model was opened for the first time, and eager was tried."""

    model: str
    reason: str = ""  # why it cannot be tuned; "": it can
    diagnosis: Diagnosis = Diagnosis()
    eager: Trial | None = None
    wall_s: float = 0.0


class Tried(Line, frozen=True, kw_only=True, tag="tried"):
    """One candidate of the offered space was tried."""

    model: str
    stage: str
    trial: Trial


class Rebuilt(Line, frozen=True, kw_only=True, tag="rebuilt"):
    """A candidate was built again for a race, because its files were gone; its seconds count for nothing."""

    model: str
    trial: Trial


class Searched(Line, frozen=True, kw_only=True, tag="searched"):
    """The default search ended."""

    model: str
    budget: str
    wall_s: float
    problem: str = ""  # "": it has a plan
    chosen: Candidate = EAGER
    story: Story = Story(tried=(), chosen="")


class Raced(Line, frozen=True, kw_only=True, tag="raced"):
    """One set of fresh processes through its rounds; the first two arms are the same candidate."""

    model: str
    race: str  # RERACE or DIRECT
    process: int
    arms: tuple[str, ...]  # candidate ids
    samples: ProcessSamples
    load: str = ""
    wall_s: float = 0.0


class Lost(Line, frozen=True, kw_only=True, tag="lost"):
    """A candidate failed in a race; it takes part in none after that."""

    model: str
    candidate_id: str
    reason: str


AnyLine = Begun | Looked | Tried | Rebuilt | Searched | Raced | Lost


class Journal(StampedLines[AnyLine]):
    """Lines on disk, and the questions that the bench asks of them."""

    def __init__(self, path: Path, code: str | None = None) -> None:
        super().__init__(path, AnyLine, code)

    def begin(self, argv: tuple[str, ...], machine: MachineFingerprint) -> None:
        """Note how the bench was started, where that is not as the last time: a loop may start it for each step."""
        last = next((x for x in reversed(self.lines) if isinstance(x, Begun)), None)
        if last is None or (last.argv, last.machine, last.code) != (argv, machine, self.code):
            self.append(Begun(argv=argv, machine=machine))

    def looked(self, model: str) -> Looked | None:
        return next((x for x in self.lines if isinstance(x, Looked) and x.model == model), None)

    def tried(self, model: str) -> list[Tried]:
        """The trials of the offered space in their order."""
        return [x for x in self.lines if isinstance(x, Tried) and x.model == model]

    def trials(self, model: str) -> dict[str, Trial]:
        """By candidate; eager's is the first."""
        looked = self.looked(model)
        eager = {EAGER.id: looked.eager} if looked is not None and looked.eager is not None else {}
        return {**eager, **{x.trial.candidate.id: x.trial for x in self.tried(model)}}

    def searched(self, model: str) -> Searched | None:
        """The first one: a search is not repeated until it does well."""
        return next((x for x in self.lines if isinstance(x, Searched) and x.model == model), None)

    def lost(self, model: str) -> dict[str, str]:
        """Who failed in a race, and why."""
        return {x.candidate_id: x.reason for x in self.lines if isinstance(x, Lost) and x.model == model}

    def race(self, model: str, race: str, arms: tuple[str, ...]) -> Race:
        """The sets of processes over these arms so far, as the statistics take them."""
        found = [x for x in self.lines if isinstance(x, Raced) and (x.model, x.race, x.arms) == (model, race, arms)]
        load = "; ".join(dict.fromkeys(x.load for x in found if x.load))
        return Race(arms=arms, with_aa=True, processes=tuple(x.samples for x in found), purpose="bench", load=load)

    def codes(self, model: str) -> list[str]:
        """The commits that a model's lines are of."""
        own = [x for x in self.lines if not isinstance(x, Begun) and x.model == model]
        return list(dict.fromkeys(x.code for x in own))


def kept(trial: Trial) -> Trial:
    """A trial without what only a plan needs: tens of kilobytes each."""
    measured = trial.measurement and msgspec.structs.replace(trial.measurement, call_s=(), batch_s=())
    check = trial.check and msgspec.structs.replace(trial.check, worst=())
    return msgspec.structs.replace(trial, measurement=measured, check=check, artifacts=(), guard=None)
