"""Models for bench/prior.py: what one look at each said, and every trial that was recorded of it.

In: folders of finished runs (`compilot tune --out`), or a journal of bench/regret.py, which has tried each model's
whole space. Out: `Case` by model. Runs of one model are taken together. Covered: folders of another machine than the
first one's, and journals without features or trials: left out, and said. Not covered: what the trials mean (prior.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError
from compilot.records import Diagnosis, DiagnosisLine, MachineFingerprint, RunHeader, Trial, TrialLine

MODELS = Path(__file__).resolve().parent / "engines_models.py"


class Case(NamedTuple):
    """One model."""

    diagnosis: Diagnosis
    trials: list[Trial]


def from_folders(folders: Iterable[Path]) -> dict[str, Case]:
    """The models of these run directories, by the name of their factory."""
    found: dict[str, Case] = {}
    machine: MachineFingerprint | None = None
    for folder in folders:
        try:
            lines = RunDir(folder).lines()
        except CompilotError as problem:
            say(f"{folder}: left out: {problem}")
            continue
        header = next(line for line in lines if isinstance(line, RunHeader))
        machine = machine or header.fingerprint.machine
        if header.fingerprint.machine != machine:
            say(f"{folder}: left out: another machine, or other versions, than the first one's")
            continue
        diagnosed = [line.diagnosis for line in lines if isinstance(line, DiagnosisLine)]
        trials = [line.trial for line in lines if isinstance(line, TrialLine)]
        _add(found, _name(header), diagnosed[-1] if diagnosed else Diagnosis(), trials)
    return found


class _Line(msgspec.Struct):
    """What is needed of a line of bench/regret.py's journal; it has more."""

    type: str = ""
    model: str = ""
    diagnosis: Diagnosis | None = None
    trial: Trial | None = None


def from_regret(path: Path) -> dict[str, Case]:
    """The models of an exhaustive journal."""
    found: dict[str, Case] = {}
    for raw in path.read_bytes().splitlines():
        try:
            line = msgspec.json.decode(raw, type=_Line)
        except msgspec.DecodeError:
            continue  # cut off by a kill, or of another kind
        if line.type == "looked" and line.diagnosis is not None:
            _add(found, line.model, line.diagnosis, [])
        elif line.type == "tried" and line.trial is not None and line.model in found:
            found[line.model].trials.append(line.trial)
    return found


def usable(cases: dict[str, Case]) -> dict[str, Case]:
    """Those that have features and trials; the others are named."""
    for name, case in cases.items():
        if case.diagnosis.features is None or not case.trials:
            say(f"{name}: left out: {'no trials' if case.diagnosis.features else 'no features'} in its journal")
    return {name: case for name, case in cases.items() if case.diagnosis.features is not None and case.trials}


def with_features(cases: dict[str, Case]) -> dict[str, Case]:
    """The same, with features taken now of bench/engines.py's models whose journal is older than they are."""
    return {name: _featured(name, case) for name, case in cases.items()}


def _featured(name: str, case: Case) -> Case:
    if case.diagnosis.features is not None:
        return case
    from compilot.diagnose.model.features import features
    from compilot.workload.target import load_target

    found = features(load_target(f"{MODELS}:{name}"))
    say(f"{name}: {found}")
    return case._replace(diagnosis=msgspec.structs.replace(case.diagnosis, features=found))


def _add(found: dict[str, Case], name: str, diagnosis: Diagnosis, trials: list[Trial]) -> None:
    before = found[name].trials if name in found else []
    found[name] = Case(diagnosis, [*before, *trials])


def _name(header: RunHeader) -> str:
    return header.workload.target.rpartition(":")[2] if header.workload.target else header.workload.label


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
