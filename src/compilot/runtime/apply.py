"""Apply a plan: the one door from a plan file to a fast model.

In: the user's model and a Plan, a plan file, a run directory or a bundle. Out: a Fast. What does not fit this model or
machine, or cannot be trusted, is explained and eager answers; a plan's process settings are compared and reported, and
changed only by `apply_process`. Not covered: background builds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from compilot.artifacts.bundle import is_bundle
from compilot.artifacts.homes import home_of
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.vouching import Trust
from compilot.engines.baked import OtherWeights
from compilot.errors import CompilotError, InputError, PlanError, StalePlan, first_cause
from compilot.identity.differences import Severity, differences, sentences
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import Fingerprint, Plan, PlanEntry, ProcessSettings
from compilot.runtime.bundles import Options, opened_bundle, start
from compilot.runtime.fast import Fast, Part, Terms, attach_eager, attach_parts, refuse_compiled
from compilot.runtime.notices import CompilotWarning, StalePlanWarning, warn
from compilot.runtime.process import apply_settings, tell_differing
from compilot.runtime.starts import note_first

PLAN_NAME = "plan.json"


def compile(  # noqa: A001  # the public name, as in torch.compile
    model: nn.Module,
    plan: Plan | str | os.PathLike[str],
    *,
    inplace: bool = False,
    strict: bool = False,
    allow_stale: bool = False,
    folder: str | os.PathLike[str] | None = None,
    keep_model: bool = True,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
) -> Fast:
    """The model as the plan says. folder: where the plan's artifacts lie, when the plan is not given as a file.

    Where weights were frozen, updates of the whole model, swapped parameters and modules are noticed at the next call;
    an edit of a single weight in place when its turn comes (see docs/tune.md): call refresh() after such an edit.

    keep_model=False lets go of the model's weights: the memory is free as soon as you drop the model. Then nothing can
    fall back: a plan that does not fit raises, and a call that the plan does not take raises NoFallback.
    """
    strict = strict or not keep_model
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        trust = Trust(trusted_keys, require_signature)
        options = Options(trust, allow_stale=allow_stale, keep_model=keep_model, inplace=inplace)
        return _from_bundle(model, Path(plan), options, strict)
    record, beside = _read(plan, None if folder is None else Path(folder))
    stale = _stale(record, model, strict=strict, allow_stale=allow_stale)
    if stale is not None:
        return attach_eager(model, stale, inplace=inplace)
    if not record.entries and not keep_model:
        raise InputError(f"keep_model=False cannot be used: this plan keeps the model eager ({record.because}).")
    if not record.entries:
        return attach_eager(model, inplace=inplace)
    tell_differing(record.entries[0].candidate.process)
    parts = tuple(
        Part(entry.candidate, entry.guard, _artifacts(entry, beside), entry.weights_sha256) for entry in record.entries
    )
    first = record.entries[0]
    note_first(first, model, None if beside is None else beside / first.artifacts_dir)
    try:
        return attach_parts(model, parts, terms=Terms(keep_model=keep_model), inplace=inplace)
    except OtherWeights as error:
        if strict:
            raise StalePlan(f"the plan is stale: {error}.", (str(error),)) from error
        warn(f"the plan is stale: {error}. Until then eager answers.", StalePlanWarning)
        return attach_eager(model, f"stale plan: {error}", inplace=inplace)
    except Exception as error:
        if strict:
            raise
        reason = f"the engine could not be loaded: {first_cause(error)}"
        warn(f"{reason}; eager answers instead.")
        return attach_eager(model, reason, inplace=inplace)


def _from_bundle(model: nn.Module, path: Path, options: Options, strict: bool) -> Fast:
    """The model as a bundle says; what is wrong with the bundle is said once, and eager answers."""
    refuse_compiled(model)
    try:
        return start(model, path, options)
    except Exception as error:
        if strict:
            raise
        said = str(error) if isinstance(error, CompilotError) else f"{path} could not be loaded: {first_cause(error)}"
        category = StalePlanWarning if isinstance(error, StalePlan) else CompilotWarning
        warn(f"{said} Eager answers instead.", category)
        return attach_eager(model, f"bundle refused: {said}", inplace=options.inplace)


def apply_process(
    plan: Plan | str | os.PathLike[str],
    *,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
) -> dict[str, tuple[Any, Any]]:
    """Give this process the plan's threads and denormal setting; returns what was changed: name -> (before, now).

    A bundle's plan is read by the same rules of trust as the bundle itself.
    """
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        record = opened_bundle(Path(plan), Trust(trusted_keys, require_signature)).plan
    else:
        record, _ = _read(plan, None)
    return apply_settings(record.entries[0].candidate.process if record.entries else ProcessSettings())


def _read(plan: Plan | str | os.PathLike[str], folder: Path | None) -> tuple[Plan, Path | None]:
    if isinstance(plan, Plan):
        return plan, folder or home_of(plan)
    path = Path(plan)
    if path.is_dir():
        path = path / PLAN_NAME
        if not path.exists():
            raise PlanError(f"there is no {PLAN_NAME} in {path.parent}; run 'compilot tune' with --out {path.parent}.")
    return load_plan(path), folder or path.parent


def _artifacts(entry: PlanEntry, folder: Path | None) -> Path | None:
    """The entry's artifact folder, where it is really there."""
    if folder is None or not entry.artifacts_dir:
        return None
    found = folder / entry.artifacts_dir
    return found if found.is_dir() else None


def _stale(plan: Plan, model: nn.Module, *, strict: bool, allow_stale: bool) -> str | None:
    """Why the plan must not be applied; None: it may be, with a warning where its speed is unproven."""
    used = {entry.candidate.settings.engine for entry in plan.entries}
    now = Fingerprint(machine=machine_fingerprint(engines=used), model=model_fingerprint(model))
    found = differences(plan.fingerprint, now, used)
    unsafe = [one for one in found if one.severity is Severity.UNSAFE]
    if unsafe and not allow_stale:
        text = f"the plan is stale: {sentences(unsafe)} Run 'compilot tune' here, or pass allow_stale=True."
        if strict:
            raise StalePlan(text, tuple(one.sentence for one in unsafe))
        warn(f"{text} Until then eager answers.", StalePlanWarning)
        return f"stale plan: {unsafe[0].sentence}"
    if found:
        text = f"the plan was measured under other conditions, so its speed is unproven here: {sentences(found)}"
        warn(text)
    return None
