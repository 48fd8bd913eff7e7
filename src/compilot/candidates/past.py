"""A finished run as later ones remember it: the features of its model, and what each trial brought.

In: the lines of a journal. Out: a `PastRun`, small enough to read two hundred of them at the start of a run; None for a
journal that has no verdict or no features. Covered: resumed runs (the last trial of each candidate), candidates that
turned out to be the same program. Failures that the user's own limits may have caused, and trials that ran out of time,
say nothing about another run and are left out. So are lower precisions, which the user has to allow. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates import worth
from compilot.records import (
    Candidate,
    DiagnosisLine,
    Features,
    JournalLine,
    MachineFingerprint,
    ModelFingerprint,
    Precision,
    ProcessSettings,
    Record,
    RunHeader,
    Settings,
    State,
    Trial,
    TrialLine,
    VerdictLine,
)

PAST_SCHEMA = 1  # raised when a field changes its meaning


class PastTrial(Record, frozen=True, kw_only=True):
    """One candidate of a finished run."""

    settings: Settings
    process: ProcessSettings = ProcessSettings()
    gain: float | None = None  # log speed-up over eager at the screening; None: it did not work


class PastRun(Record, frozen=True, kw_only=True):
    """One finished run."""

    schema: int = PAST_SCHEMA
    label: str  # of the model, for people
    model: str  # the same for the same model
    machine: MachineFingerprint
    callers: int
    features: Features
    trials: tuple[PastTrial, ...]  # eager itself is not among them; in the order tried


def past_run(lines: Sequence[JournalLine]) -> PastRun | None:
    """What later runs may learn from a journal; None: nothing."""
    headers = [line for line in lines if isinstance(line, RunHeader)]
    diagnosed = [line.diagnosis for line in lines if isinstance(line, DiagnosisLine)]
    decided = any(isinstance(line, VerdictLine) for line in lines)
    features = diagnosed[-1].features if diagnosed else None
    if not headers or features is None or not decided:
        return None
    trials = [line.trial for line in lines if isinstance(line, TrialLine)]
    return PastRun(
        label=headers[0].workload.label,
        model=model_key(headers[0].fingerprint.model),
        machine=headers[0].fingerprint.machine,
        callers=headers[0].concurrency,
        features=features,
        trials=past_trials(trials, headers),
    )


def model_key(model: ModelFingerprint) -> str:
    """The same for the same code, structure and parameters; of each a part long enough to tell models apart."""
    return "-".join(part[:16] for part in (model.code_sha256, model.structure_sha256, model.parameters_sha256))


def past_trials(trials: Iterable[Trial], headers: Iterable[RunHeader] = ()) -> tuple[PastTrial, ...]:
    """What is worth remembering of the trials; headers: what the user asked for in each part of the run."""
    last = {trial.candidate.id: trial for trial in trials}
    excused = _excused(headers)
    return tuple(_remembered(last, excused))


def _excused(headers: Iterable[RunHeader]) -> set[State]:
    """Failures that may be due to a limit of the user's own; those of a run's other parts count the same."""
    found = {State.TIMED_OUT}
    for header in headers:
        if header.max_compile_s is not None or header.max_memory_bytes is not None:
            found.add(State.INFEASIBLE)
        if header.max_error is not None:
            found.add(State.WRONG)
    return found


def _remembered(trials: Mapping[str, Trial], excused: set[State]) -> Iterator[PastTrial]:
    for trial in trials.values():
        measured = trials.get(trial.same_as, trial) if trial.same_as is not None else trial
        gain, candidate = worth.speed(measured), trial.candidate
        unknown = measured.state in excused or (gain is None and measured.state in (State.OK, State.PRUNED))
        if _is_plain(candidate) and not unknown:
            yield PastTrial(settings=candidate.settings, process=candidate.process, gain=gain)


def _is_plain(candidate: Candidate) -> bool:
    """Whether a later search may ask for it unasked."""
    return not candidate.is_eager and not candidate.regions and candidate.settings.precision is Precision.AS_IS


# ------------------------------------------------------------------------------------------------- what it shows


Point = frozenset[tuple[str, str]]  # every setting of a candidate, as names and values
Turned = tuple[str, str, str]  # engine, setting, its new value


class Shown(NamedTuple):
    """What a run shows about engines, their points and their knobs."""

    best: float  # log speed-up of its best, 0.0 where nothing was faster than eager
    first: dict[str, float | None]  # engine -> log speed-up of the point that was tried first; None: it did not work
    points: dict[Point, float]  # what another point brought over the first, at least 0.0
    turned: dict[Turned, float]  # what a change of one setting brought


_BASELINE = PastTrial(settings=Settings(), gain=0.0)  # eager: what its own variations are compared with


def shown(run: PastRun) -> Shown:
    """What a run shows."""
    first: dict[str, float | None] = {}
    points: dict[Point, float] = {}
    for trial in run.trials:
        engine = trial.settings.engine
        if trial.process != ProcessSettings():
            continue
        if engine not in first:
            first[engine] = trial.gain
        else:
            points[point(trial.settings, trial.process)] = max(0.0, (trial.gain or 0.0) - (first[engine] or 0.0))
    best = max([0.0, *(trial.gain for trial in run.trials if trial.gain is not None)])
    return Shown(best, first, points, _turned((_BASELINE, *run.trials)))


def point(settings: Settings, process: ProcessSettings) -> Point:
    """Everything that is set, each as a name and a value."""
    plain = {"mode": settings.mode, "shapes": settings.shapes, "memory_format": settings.memory_format}
    options = {f"options.{name}": value for name, value in settings.options.items()}
    found = {**plain, "precision": settings.precision, **options, **msgspec.structs.asdict(process)}
    named = {(name, repr(value)) for name, value in found.items() if value is not None}
    return frozenset({*named, ("engine", settings.engine)})


def turned(before: Point, after: Point) -> Turned | None:
    """The one setting that differs and its new value; "": it is no longer set. None: more than one differs."""
    names = {name for name, _ in before ^ after}
    if len(names) != 1 or "engine" in names:
        return None
    (name,) = names
    return (dict(after)["engine"], name, dict(after).get(name, ""))


def _turned(trials: Sequence[PastTrial]) -> dict[Turned, float]:
    """Of each change the mean over all pairs of trials that differ by it alone, both ways round."""
    gains: dict[Turned, list[float]] = {}
    alike: dict[tuple[str, Point], list[tuple[str, float, str]]] = {}  # by what is left without one setting
    names = {name for trial in trials for name, _ in point(trial.settings, trial.process)} - {"engine"}
    for trial in trials:
        own = point(trial.settings, trial.process)
        values = dict(own)
        for name in names if trial.gain is not None else ():
            rest = own - {(name, values[name])} if name in values else own
            row = (values.get(name, ""), trial.gain or 0.0, trial.settings.engine)
            for value, gain, engine in alike.setdefault((name, rest), []):
                gains.setdefault((engine, name, row[0]), []).append(row[1] - gain)
                gains.setdefault((engine, name, value), []).append(gain - row[1])
            alike[name, rest].append(row)
    return {change: sum(found) / len(found) for change, found in gains.items()}
