"""The course of a search in seconds of the run. In: the lines of a journal. Out: Course.

A trial's line is written when the trial ends, so it began `wall_s` before. Later lines about the same candidate correct
it (struck out in a race, judged anew when the run was resumed) and are no trials of their own. The seconds of a resumed
run go on where its earlier part ended. Pure. Not covered: how it is drawn (charts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import engines_of
from compilot.records import (
    Comparison,
    Decision,
    DiagnosisLine,
    JournalLine,
    Race,
    RaceLine,
    RunHeader,
    State,
    TrialLine,
    VerdictLine,
)
from compilot.verdict.compare import compare
from compilot.verdict.finalists import screening_ratio

OVER = 1.02  # times the budget: writing the plan takes a moment
RACING = {"race": "racing", "confirm": "confirming"}  # what a race is for -> the part of the run that it ends


class Mark(NamedTuple):
    """One trial."""

    candidate_id: str
    label: str
    engine: str
    state: State
    reason: str
    from_s: float
    to_s: float
    ratio: float | None  # speed-up over eager at the trial; None: it was not timed


class Phase(NamedTuple):
    """What a part of the run was spent on."""

    name: str  # "preparing", "trying", "racing", "confirming" or "comparing"
    from_s: float
    to_s: float


class Ending(NamedTuple):
    """What the run came to."""

    candidate_id: str
    uses: bool  # False: eager stays
    at_s: float
    versus: Comparison | None  # the chosen one against eager in fresh processes; None: it was not confirmed


class Course(NamedTuple):
    """A search as it went."""

    marks: tuple[Mark, ...]  # in the order tried
    phases: tuple[Phase, ...]
    ending: Ending | None  # None: the run ended before its verdict
    end_s: float
    budget_s: float | None  # None: the run was resumed, and each part had its own

    def chose(self, mark: Mark) -> bool:
        """Whether the plan uses it; where eager stays, eager."""
        return self.ending is not None and mark.candidate_id == self.ending.candidate_id


class Part(NamedTuple):
    """The lines from one header to the next, and when it began."""

    lines: tuple[JournalLine, ...]
    from_s: float
    to_s: float


def course(lines: Sequence[JournalLine]) -> Course:
    """The course that a journal has recorded."""
    found = _parts(lines)
    headers = [line for line in lines if isinstance(line, RunHeader)]
    return Course(
        marks=_marks(found),
        phases=tuple(phase for part in found for phase in _phases(part) if phase.to_s > phase.from_s),
        ending=_ending(found),
        end_s=found[-1].to_s if found else 0.0,
        budget_s=headers[0].budget_s if len(headers) == 1 else None,
    )


def improvements(marks: Iterable[Mark]) -> list[Mark]:
    """The trials that were better than every one before them; the first is eager's."""
    best: list[Mark] = []
    for mark in marks:
        if mark.state is State.OK and mark.ratio is not None and (not best or mark.ratio > (best[-1].ratio or 0.0)):
            best.append(mark)
    return best


def timed(found: Course) -> list[Mark]:
    """The trials with a figure that counts."""
    return [mark for mark in found.marks if mark.state is State.OK and mark.ratio is not None]


def keyed(found: Course) -> list[Mark]:
    """Those to name: each improvement, and the chosen one."""
    best = improvements(timed(found))
    return [mark for mark in timed(found) if mark in best or found.chose(mark)]


def over_budget(found: Course) -> float | None:
    """The budget, where the run took clearly longer."""
    return found.budget_s if found.budget_s is not None and found.end_s > OVER * found.budget_s else None


def spent(found: Course) -> str:
    """How many candidates there were, and the seconds of each kind of part."""
    tried = sum(1 for mark in found.marks if mark.candidate_id != EAGER.id)
    sums: dict[str, float] = {}
    for phase in found.phases:
        sums[phase.name] = sums.get(phase.name, 0.0) + phase.to_s - phase.from_s
    words = [f"{tried} candidate{'' if tried == 1 else 's'} tried", *(f"{s:.0f} s {name}" for name, s in sums.items())]
    over = "" if over_budget(found) is None else "; dashed: the end of the budget"
    return ", ".join(words) + over


# ------------------------------------------------------------------------------------------------------------- parts


def _parts(lines: Sequence[JournalLine]) -> list[Part]:
    starts = [number for number, line in enumerate(lines) if isinstance(line, RunHeader)]
    found: list[Part] = []
    for first, after in pairwise([*starts, len(lines)]):
        from_s = found[-1].to_s if found else 0.0
        own = tuple(lines[first:after])
        found.append(Part(own, from_s, from_s + max((_at_s(line) for line in own), default=0.0)))
    return found


def _at_s(line: JournalLine) -> float:
    return line.at_s if isinstance(line, TrialLine | RaceLine | VerdictLine) else 0.0


def _tried(part: Part) -> list[TrialLine]:
    """The trials of a part: the first line of each candidate after the diagnosis; others correct."""
    begun = next((n for n, line in enumerate(part.lines) if isinstance(line, DiagnosisLine)), len(part.lines))
    first: dict[str, TrialLine] = {}
    for line in part.lines[begun:]:
        if isinstance(line, TrialLine):
            first.setdefault(line.trial.candidate.id, line)
    return list(first.values())


# ------------------------------------------------------------------------------------------------------------- marks


def _marks(parts: Sequence[Part]) -> tuple[Mark, ...]:
    """Every trial, in the state that it has in the end; when it was tried again, the earlier one keeps its own."""
    found: list[Mark] = []
    for part in parts:
        tried = {id(line) for line in _tried(part)}
        for line in part.lines:
            if isinstance(line, TrialLine):
                found = [*found, _mark(line, part)] if id(line) in tried else _corrected(found, line)
    return tuple(found)


def _mark(line: TrialLine, part: Part) -> Mark:
    trial = line.trial
    return Mark(
        candidate_id=trial.candidate.id,
        label=trial.candidate.label,
        engine=" + ".join(engines_of(trial.candidate)),
        state=trial.state,
        reason=trial.reason,
        from_s=part.from_s + max(0.0, line.at_s - trial.wall_s),
        to_s=part.from_s + line.at_s,
        ratio=1.0 if trial.candidate.is_eager else screening_ratio(trial),
    )


def _corrected(marks: list[Mark], line: TrialLine) -> list[Mark]:
    """With the newer state in the last mark of the same candidate."""
    same = [number for number, mark in enumerate(marks) if mark.candidate_id == line.trial.candidate.id]
    last = same[-1] if same else None
    state, reason = line.trial.state, line.trial.reason
    return [mark._replace(state=state, reason=reason) if number == last else mark for number, mark in enumerate(marks)]


# ------------------------------------------------------------------------------------------------------------ phases


def _phases(part: Part) -> list[Phase]:
    """Each ends when its last line was written; the first trial's beginning ends the preparing."""
    tried = _tried(part)
    if not tried:
        return []
    begun_s = max(0.0, tried[0].at_s - tried[0].trial.wall_s)
    ends = [("preparing", begun_s), ("trying", tried[-1].at_s), *_race_ends(part)]
    found, from_s = [], part.from_s
    for name, to_s in ends:
        found.append(Phase(name, from_s, part.from_s + to_s))
        from_s = part.from_s + to_s
    return found


def _race_ends(part: Part) -> list[tuple[str, float]]:
    """When each kind of race ended; the verdict belongs to the last one."""
    races = [line for line in part.lines if isinstance(line, RaceLine)]
    groups = groupby(races, key=lambda line: RACING.get(line.race.purpose, "comparing"))
    ends = [(name, list(lines)[-1].at_s) for name, lines in groups]
    if ends and part.lines and isinstance(part.lines[-1], VerdictLine):
        ends[-1] = (ends[-1][0], part.lines[-1].at_s)
    return ends


# ------------------------------------------------------------------------------------------------------------ ending


def _ending(parts: Sequence[Part]) -> Ending | None:
    if not parts:
        return None
    last = parts[-1]
    verdicts = [line for line in last.lines if isinstance(line, VerdictLine)]
    if not verdicts:
        return None
    verdict = verdicts[-1].verdict
    races = [line.race for line in last.lines if isinstance(line, RaceLine) and line.race.purpose == "confirm"]
    return Ending(
        candidate_id=verdict.chosen_id,
        uses=verdict.decision is Decision.USE,
        at_s=last.from_s + verdicts[-1].at_s,
        versus=_confirmed(races, verdict.chosen_id),
    )


def _confirmed(races: Sequence[Race], chosen: str) -> Comparison | None:
    """The last confirmation's word; eager is not compared with itself."""
    for race in reversed(races):
        if chosen in race.arms and chosen != race.arms[0]:
            return compare(race, chosen, race.arms[0])
    return None
