"""Who stands in the final: every figure the rules need about one arm, in one place.

In: trials, the confirming race, warm starts. Out: a Field of eager and the candidates that may replace it.
Covered: only candidates whose trial is ok and that ran in the race enter. Not covered: choosing (rules.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compilot.measure.stats import median
from compilot.records import Comparison, Measurement, Outcome, ProcessSettings, Race, State, Trial
from compilot.verdict.compare import compare


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One arm of the final."""

    id: str
    label: str
    per_call_s: float  # eager's median over the race, divided by the paired speed-up
    first_s: float | None  # cold: build and first call
    import_s: float = 0.0  # beside that: importing torch's compiler in a fresh process
    warm_s: float | None = None  # first call of a fresh process with kept artifacts
    warm_import_s: float = 0.0  # beside that: the same import, where kept artifacts need it
    call_s: tuple[float, ...] = ()
    peak_rss_bytes: int = 0  # 0: unknown
    versus_eager: Comparison | None = None  # None for eager itself
    doubts: tuple[str, ...] = ()
    sets_process: bool = False  # its user has to set threads or memory for the whole process

    @property
    def is_faster(self) -> bool:
        """Shown to be faster than eager."""
        return self.versus_eager is not None and self.versus_eager.outcome is Outcome.FASTER

    @property
    def start_s(self) -> float:
        """First call of a fresh process as a user of the plan meets it: with kept artifacts where that was measured."""
        known = self.warm_s if self.warm_s is not None else self.first_s
        return float("inf") if known is None else known

    @property
    def cold_s(self) -> float:
        """First call from nothing; unknown counts as for ever."""
        return float("inf") if self.first_s is None else self.first_s


@dataclass(frozen=True, kw_only=True)
class Field:
    """Eager and those that may replace it."""

    race: Race
    eager: Contender
    candidates: tuple[Contender, ...]

    @property
    def faster(self) -> list[Contender]:
        """Candidates shown faster than eager, best ratio first."""
        return sorted((c for c in self.candidates if c.is_faster), key=lambda c: c.per_call_s)


def make_field(trials: Sequence[Trial], race: Race, warm_starts: Mapping[str, Measurement]) -> Field | None:
    """The final's field; None when eager itself has no usable sample."""
    by_id = {trial.candidate.id: trial for trial in trials}
    eager_id = race.arms[0]
    eager_s = column_median(race, 0)
    if eager_s is None:
        return None
    finalists = [arm for arm in dict.fromkeys(race.arms) if arm != eager_id and _is_ok(by_id.get(arm))]
    return Field(
        race=race,
        eager=_contender(eager_id, by_id.get(eager_id), eager_s, warm_starts.get(eager_id), None),
        candidates=tuple(
            _contender(arm, by_id[arm], eager_s, warm_starts.get(arm), compare(race, arm, eager_id))
            for arm in finalists
        ),
    )


def column_median(race: Race, column: int) -> float | None:
    """Median over all processes of one arm's batch samples; None without a usable sample."""
    samples = [row[column] for process in race.processes for row in process.rounds]
    middle = median(samples) if samples else 0.0
    return middle if 0.0 < middle < float("inf") else None


def _is_ok(trial: Trial | None) -> bool:
    return trial is not None and trial.state is State.OK


def _contender(
    arm: str, trial: Trial | None, eager_s: float, warm: Measurement | None, versus: Comparison | None
) -> Contender:
    cold = trial.measurement if trial else None
    latest = warm or cold  # a fresh process with kept artifacts is what the user will run: its memory counts
    return Contender(
        id=arm,
        label=trial.candidate.label if trial else arm,
        per_call_s=eager_s / versus.ratio if versus else eager_s,
        first_s=cold.cold_s if cold else None,
        import_s=cold.import_s if cold else 0.0,
        warm_s=warm.cold_s if warm else None,
        warm_import_s=warm.import_s if warm else 0.0,
        call_s=(cold.call_s if cold else ()) + (warm.call_s if warm else ()),
        peak_rss_bytes=latest.peak_rss_bytes if latest else 0,
        versus_eager=versus,
        doubts=_doubts(cold, versus),
        sets_process=trial is not None and trial.candidate.process != ProcessSettings(),
    )


def _doubts(measurement: Measurement | None, versus: Comparison | None) -> tuple[str, ...]:
    """Doubts of the trial and of the comparison, each once."""
    found = list(measurement.doubts) if measurement else []
    if measurement and measurement.warm_up and not measurement.warm_up.steady:
        found.append("unsteady")
    return tuple(dict.fromkeys([*found, *(versus.doubts if versus else ())]))
