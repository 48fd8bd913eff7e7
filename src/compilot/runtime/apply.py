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
from compilot.artifacts.vouching import Trust
from compilot.engines.baked import OtherWeights
from compilot.errors import ArtifactError, CompilotError, InputError, StalePlan, UntrustedPlan, first_cause
from compilot.identity.differences import Severity, differences, sentences
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import Fingerprint, ModelFingerprint, Plan
from compilot.runtime.bundles import Options, opened_bundle, start
from compilot.runtime.fast import Fast, Terms, attach_eager, attach_parts, refuse_compiled
from compilot.runtime.notices import CompilotWarning, StalePlanWarning, warn
from compilot.runtime.plans import checked_parts, read_plan
from compilot.runtime.process import apply_settings, tell_differing
from compilot.runtime.start_notes import note_first


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
    check_indices: bool = True,
    strict_weights: bool = False,
) -> Fast:
    """The model as the plan says. folder: where the plan's artifacts lie, when the plan is not given as a file.

    Where weights were frozen, updates of the whole model, swapped parameters and modules, and another forward or class
    of the model are noticed at the next call; a single weight that is edited in place, attributes and other code within
    256 calls (see docs/tune.md): call refresh() after such an edit. strict_weights=True looks at every weight in every
    call, for about 0.15 microseconds each: then every write that raises a tensor's version is noticed at the next call.

    keep_model=False lets go of the model's weights: the memory is free as soon as you drop the model. Then nothing can
    fall back: a plan that does not fit raises, and a call that the plan does not take raises NoFallback.

    check_indices=False saves the look at the values of inputs that are used as indices (about 2 microseconds per
    call). It is dangerous: an index out of range then ends the process or gives some number, where eager raises.
    """
    strict = strict or not keep_model
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        trust = Trust(trusted_keys, require_signature)
        options = Options(
            trust,
            allow_stale=allow_stale,
            keep_model=keep_model,
            inplace=inplace,
            check_indices=check_indices,
            strict_weights=strict_weights,
        )
        return _from_bundle(model, Path(plan), options, strict)
    try:
        _refuse_unsigned(plan, require_signature)
        record, beside = read_plan(plan, None if folder is None else Path(folder))
    except UntrustedPlan as error:
        return _refused(model, error, strict=strict, inplace=inplace)
    stale = _stale(record, model_fingerprint(model), strict=strict, allow_stale=allow_stale)
    if stale is not None:
        return attach_eager(model, stale, inplace=inplace)
    if not record.entries and not keep_model:
        raise InputError(f"keep_model=False cannot be used: this plan keeps the model eager ({record.because}).")
    if not record.entries:
        return attach_eager(model, inplace=inplace)
    tell_differing(record.process)
    first = record.entries[0]
    try:
        terms = Terms(keep_model=keep_model, check_indices=check_indices, strict_weights=strict_weights)
        parts, terms = checked_parts(record, beside, terms)
        note_first(first, model, None if beside is None else beside / first.artifacts_dir)
        return attach_parts(model, parts, terms=terms, inplace=inplace)
    except (UntrustedPlan, ArtifactError) as error:
        return _refused(model, error, strict=strict, inplace=inplace)
    except OtherWeights as error:
        if strict:
            raise StalePlan(f"the plan is stale: {error}.", (str(error),)) from error
        warn(f"the plan is stale: {error}. Run 'compilot tune' again; until then eager answers.", StalePlanWarning)
        return attach_eager(model, f"stale plan: {error}", inplace=inplace)
    except Exception as error:
        if strict:
            raise
        what = "the plan is not used" if isinstance(error, InputError) else "the engine could not be loaded"
        reason = f"{what}: {first_cause(error)}"
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

    It is read by the same rules of trust as for `compile`; what others can change is refused.
    """
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        record = opened_bundle(Path(plan), Trust(trusted_keys, require_signature)).plan
    else:
        _refuse_unsigned(plan, require_signature)
        record, _ = read_plan(plan, None)
    return apply_settings(record.process)


def _refuse_unsigned(plan: Plan | str | os.PathLike[str], require_signature: bool) -> None:
    if require_signature:
        what = "the plan" if isinstance(plan, Plan) else str(plan)
        why = "only bundles are signed, and a signature is required"
        raise UntrustedPlan(f"{what} is not used: {why}; pack it with 'compilot pack --sign KEY', and use the bundle.")


def _refused(model: nn.Module, error: CompilotError, *, strict: bool, inplace: bool) -> Fast:
    """Eager behind the same face, because a plan or a file beside it must not be used."""
    if strict:
        raise error
    warn(f"{error} Until then eager answers.")
    return attach_eager(model, f"plan refused: {error}", inplace=inplace)


def _stale(plan: Plan, model: ModelFingerprint, *, strict: bool, allow_stale: bool) -> str | None:
    """Why the plan must not be applied; None: it may be, with a warning where its speed is unproven."""
    used = {entry.candidate.settings.engine for entry in plan.entries}
    now = Fingerprint(machine=machine_fingerprint(engines=used), model=model)
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
