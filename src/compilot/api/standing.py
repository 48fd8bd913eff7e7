"""`compilot.status`: is a plan or a bundle still right? In: a plan, a bundle or a run directory, perhaps the model.

Out: a `Status`: what changed since it was made, whether that matters, what to do. Without a model nothing is run and
torch is not imported: versions come from what is installed. With measure=True the plan's claim is measured again
(repeating.py). A plan is trusted by the same rules as for use. Not covered: a bundle's digests and signature: `verify`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compilot.errors import InputError
from compilot.ledger.repeating import Repeat, Reproduced
from compilot.progress import Observer
from compilot.records import Fingerprint, ModelFingerprint, Plan, Record, Shipment

if TYPE_CHECKING:
    from torch import nn

    from compilot.identity.differences import Difference
    from compilot.workload import Workload

MEASURE_BUDGET = "1m"
PLAN, BUNDLE = "plan", "bundle"


class StatusChange(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that is not as it was."""

    what: str  # "machine.torch", "model.code_sha256", "files", ...
    old: str
    new: str
    severity: str  # "unsafe": it must not be used here; "unproven": answers stay right, the speed is not known
    sentence: str


class Status(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Whether a plan or a bundle is still right."""

    path: Path
    kind: str  # "plan" or "bundle"
    model: str
    created: str
    right: bool  # it may be used here as it is
    sentence: str  # the answer
    advice: str  # what to do
    changes: tuple[StatusChange, ...]  # those that matter most first
    not_compared: tuple[str, ...]  # what nobody looked at
    measured: Reproduced | None = None  # None: nobody asked


class _Made(NamedTuple):
    """What is asked about."""

    path: Path
    kind: str
    label: str
    created: str
    fingerprint: Fingerprint
    engines: frozenset[str]
    compiles: bool | None  # as `differences` takes it
    weights: bool = False  # the values of the model's weights are part of the fingerprint
    plan: Plan | None = None
    target: str | None = None


def status(
    plan: str | os.PathLike[str],
    model: nn.Module | Workload | str | None = None,
    *,
    measure: bool = False,
    budget: str | float = MEASURE_BUDGET,
    argv: Sequence[str] = (),
    observer: Observer | None = None,
    progress: bool = True,
) -> Status:
    """Is a plan, a bundle or a run's plan still right for this model, machine and torch? As `compilot status`.

    plan is a plan file, a bundle or a run directory. model is compared with the one it was made for: a model, a
    Workload, or a target. measure=True also measures the claim again, within the budget.
    """
    made = _made(Path(plan))
    found = [*_compared(made, model), *_files(made)]
    unsafe = any(one.severity == "unsafe" for one in found)
    again = _again(made, model, budget, argv, observer, progress) if measure else None
    failed = again is not None and again.result is Repeat.DOES_NOT_HOLD
    return Status(
        path=made.path,
        kind=made.kind,
        model=made.label,
        created=made.created,
        right=not unsafe and not failed,
        sentence=_sentence(found, unsafe, again),
        advice=_advice(made, found, unsafe, again),
        changes=tuple(sorted(found, key=lambda one: one.severity != "unsafe")),
        not_compared=tuple(_left_out(made, model)),
        measured=again,
    )


def _made(path: Path) -> _Made:
    from compilot.artifacts.bundle import is_bundle
    from compilot.artifacts.planfolder import PLAN_NAME, open_plan
    from compilot.artifacts.rundir import RunDir
    from compilot.engines.of_candidate import engines_of

    if not path.exists():
        raise InputError(f"there is no {path}; give a plan.json, a bundle or a run directory.")
    if is_bundle(path):
        return _bundle(path)
    plan = RunDir(path).open_plan() if path.is_dir() else open_plan(path)
    used = frozenset(name for entry in plan.entries for name in engines_of(entry.candidate))
    place = path / PLAN_NAME if path.is_dir() else path
    return _Made(
        *(place, PLAN, plan.workload.label, plan.created, plan.fingerprint, used, None),
        plan=plan,
        target=plan.workload.target,
    )


def _bundle(path: Path) -> _Made:
    from compilot.artifacts.bundle import read_manifest
    from compilot.records import Weights

    manifest = read_manifest(path)
    compiles = any(entry.needs_compiler for entry in manifest.entries)
    frozen = manifest.weights is Weights.MODEL and manifest.fingerprint.model.weights_sha256 is not None
    used = frozenset({manifest.engine, *manifest.engines})
    return _Made(path, BUNDLE, manifest.label, manifest.created, manifest.fingerprint, used, compiles, frozen)


# ------------------------------------------------------------------------------------------------------ what changed


def _compared(made: _Made, model: nn.Module | Workload | str | None) -> list[StatusChange]:
    from compilot.identity.differences import differences
    from compilot.identity.machine import installed_machine, machine_fingerprint

    compiler = made.compiles is not False
    if model is None:
        machine = installed_machine(made.fingerprint.machine, compiler=compiler, engines=made.engines)
        here = Fingerprint(machine=machine, model=made.fingerprint.model)
    else:
        machine = machine_fingerprint(compiler=compiler, engines=made.engines)
        here = Fingerprint(machine=machine, model=_fingerprint(model, made.weights))
    return [_change(one) for one in differences(made.fingerprint, here, made.engines, compiles=made.compiles)]


def _fingerprint(model: nn.Module | Workload | str, weights: bool) -> ModelFingerprint:
    from compilot.identity.model import model_fingerprint
    from compilot.workload import Workload
    from compilot.workload.target import load_target

    opened: Any = load_target(model) if isinstance(model, str) else model
    return model_fingerprint(opened.model if isinstance(opened, Workload) else opened, weights=weights)


def _change(one: Difference) -> StatusChange:
    return StatusChange(what=one.field, old=one.old, new=one.new, severity=str(one.severity), sentence=one.sentence)


def _files(made: _Made) -> list[StatusChange]:
    """Whether a plan's files are those that were measured; a plan whose files are gone builds them again."""
    from compilot.artifacts.planfolder import Claim, checked, missing_file, needs_of
    from compilot.errors import ArtifactError

    found = []
    for entry in made.plan.entries if made.plan is not None else ():
        if not entry.artifacts_dir:
            continue
        claim = Claim(made.path.parent / entry.artifacts_dir, entry.artifacts, needs_of(entry.candidate))
        if missing := missing_file(claim):
            told = f"{missing} is missing: the first call builds it again."
            found.append(StatusChange(what="files", old="", new="", severity="unproven", sentence=told))
            continue
        try:
            checked(claim)
        except ArtifactError as problem:
            told = str(problem).partition(";")[0] + "."
            found.append(StatusChange(what="files", old="", new="", severity="unsafe", sentence=told))
    return found


def _left_out(made: _Made, model: object) -> list[str]:
    found = []
    if model is None:
        found += ["the model's code, structure and parameters: name its target, too"]
        found += ["the number of torch threads and the GPU: torch was not imported"]
    frozen = made.plan is not None and any(entry.frozen_weights for entry in made.plan.entries)
    if frozen or (made.weights and model is None):
        found += ["the values of the weights that are in its files: 'compilot.compile' compares them at the start"]
    return found


# ------------------------------------------------------------------------------------------------------- the answer


def _sentence(found: list[StatusChange], unsafe: bool, again: Reproduced | None) -> str:
    measured = "" if again is None else f" Measured again: {_RESULTS[again.result]}, {again.because}."
    if unsafe:
        return f"out of date: it must not be used here as it is.{measured}"
    if again is not None and again.result is Repeat.DOES_NOT_HOLD:
        return f"its claim does not hold here any more: {again.because}."
    if found and (again is None or again.result is Repeat.INCONCLUSIVE):
        return f"still right: answers are not in danger, but its speed is unproven here.{measured}"
    return f"still right: nothing that was compared matters.{measured}"


_RESULTS = {
    Repeat.HOLDS: "the claim holds",
    Repeat.DOES_NOT_HOLD: "the claim does not hold",
    Repeat.INCONCLUSIVE: "inconclusive",
}


def _advice(made: _Made, found: list[StatusChange], unsafe: bool, again: Reproduced | None) -> str:
    target = made.target or "TARGET"
    if unsafe or (again is not None and again.result is Repeat.DOES_NOT_HOLD):
        if made.kind == BUNDLE:
            return f"pull the bundle that fits here, or run 'compilot tune {target}' and 'compilot pack' here."
        return f"run 'compilot tune {target}' here."
    what = f"{made.path} {target}" if made.kind == BUNDLE else made.path
    if again is not None and again.result is Repeat.INCONCLUSIVE:
        return f"measure longer: 'compilot status {what} --measure --budget 5m'."
    if found and made.plan is not None and not made.plan.entries:
        return f"run 'compilot tune {target}' here: it keeps eager, and may have no reason to any more."
    if found and again is None:
        return f"measure it: 'compilot status {what} --measure' takes about a minute."
    return "nothing to do."


def _again(
    made: _Made,
    model: nn.Module | Workload | str | None,
    budget: str | float,
    argv: Sequence[str],
    observer: Observer | None,
    progress: bool,
) -> Reproduced:
    from compilot.api.repeating import Again, measured_again

    plan, folder = (made.plan, made.path.parent) if made.plan is not None else (_bundled_plan(made.path), None)
    what = Again(plan, _shipment(made, model), folder)
    return measured_again(what, budget=budget, argv=argv, observer=observer, progress=progress)


def _bundled_plan(path: Path) -> Plan:
    """A bundle's own plan; its candidate is built again, since a bundle's files are laid out for starting."""
    from compilot.artifacts.bundle_trust import Trust
    from compilot.runtime.bundles import opened_bundle

    return opened_bundle(path, Trust()).plan


def _shipment(made: _Made, model: nn.Module | Workload | str | None) -> Shipment:
    from compilot.api.repeating import shipment_of
    from compilot.artifacts.rundir import RunDir
    from compilot.workload.dispatch import ship_target

    if isinstance(model, str):
        return ship_target(model)
    run_dir = RunDir(made.path.parent.absolute())
    if model is not None or made.kind == BUNDLE or not run_dir.holds_run:
        raise InputError("to measure it, name the model's target (path/to/file.py:factory), too.")
    return shipment_of(run_dir)
