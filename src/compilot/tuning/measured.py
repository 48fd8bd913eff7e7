"""What an interrupted run had measured already. In: the lines of its journal. Out: the races that need no second time.

A race counts while no candidate was tried or struck out after it. A confirmation is in the journal when all of it is
done, and counts with the warm starts of all its arms: a run that ended before its files were written gets them so.
A run that came to its end measures again when it is resumed, as somebody asked for more. Not covered: trials
(resuming.finished_trials), and whether the run was about the same model and machine (also there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compilot.records import JournalLine, Measurement, Race, RaceLine, TrialLine, VerdictLine, WarmStartLine
from compilot.tuning.comparing import over_all_sets


class Measured(NamedTuple):
    """Races of an earlier, interrupted part of the run."""

    race: Race | None = None  # among the finalists
    confirmed: tuple[Race, dict[str, Measurement]] | None = None  # with the warm start of each arm

    def race_of(self, arms: Sequence[str]) -> Race | None:
        """The race, if it was among these."""
        return self.race if self.race is not None and _candidates(self.race) == set(arms) else None

    def confirmation_of(self, arms: Sequence[str]) -> tuple[Race, dict[str, Measurement]] | None:
        """The confirmation, if it was of these."""
        found = self.confirmed
        return found if found is not None and _candidates(found[0]) == set(arms) else None


def measured(lines: Sequence[JournalLine], *, finished: bool) -> Measured:
    """The races that still count."""
    last = max((i for i, line in enumerate(lines) if _is_trial(line)), default=-1)
    tail = lines[last + 1 :]
    if finished and any(isinstance(line, VerdictLine) for line in tail):
        return Measured()
    races = {line.race.purpose: line.race for line in tail if isinstance(line, RaceLine)}
    warm, confirm = _warm_starts(tail), races.get("confirm")
    whole = confirm is not None and set(confirm.arms) <= set(warm)
    return Measured(races.get("race"), (confirm, warm) if confirm is not None and whole else None)


def _warm_starts(lines: Sequence[JournalLine]) -> dict[str, Measurement]:
    """Those of the last confirmation, one for each arm; they follow their race."""
    found: dict[str, list[Measurement]] = {}
    for line in lines:
        if isinstance(line, RaceLine) and line.race.purpose == "confirm":
            found = {}
        elif isinstance(line, WarmStartLine):
            found.setdefault(line.candidate_id, []).append(line.measurement)
    return {candidate_id: over_all_sets(measurements) for candidate_id, measurements in found.items()}


def _is_trial(line: JournalLine) -> bool:
    """Eager's does not count: its worker is needed again at every start."""
    return isinstance(line, TrialLine) and not line.trial.candidate.is_eager


def _candidates(race: Race) -> set[str]:
    return set(race.arms) - {race.arms[0]}
