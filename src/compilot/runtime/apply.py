"""Apply a plan: the one door from a plan file to a fast model.

In: the user's model and a Plan, a plan file, a run directory or a bundle. Out: a Fast. What does not fit this model or
machine, or cannot be trusted, is explained and eager answers; a plan's process settings are compared and reported, and
changed only by `apply_process`. Not covered: background builds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from torch import nn

from compilot.artifacts.bundle import is_bundle
from compilot.artifacts.bundle_trust import Trust
from compilot.engines.protocol import Infeasible
from compilot.errors import (
    ArtifactError,
    CompilotError,
    CompilotWarning,
    InputError,
    PlanNotUsedWarning,
    StalePlan,
    StalePlanWarning,
    UntrustedPlan,
    first_cause,
)
from compilot.records import Kind, Plan
from compilot.runtime.bundles import opened_bundle
from compilot.runtime.fast import Fast, attach_eager, refuse_compiled, restore
from compilot.runtime.notices import warn
from compilot.runtime.plans import PlanFolder, read_plan
from compilot.runtime.process import apply_settings
from compilot.runtime.sources import ApplyOptions
from compilot.runtime.start import start


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
    record: str | os.PathLike[str] | None = None,
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

    A plan of a training step needs inplace=True, for programs that own the loop: the model is returned as it is, and
    its calls in train mode are compiled (compilot.train_step applies the whole plan).

    record is a file in which the sizes of all calls are counted, whoever answers them: see compilot.record.
    close() of what is returned ends it.
    """
    options = ApplyOptions(
        Trust(trusted_keys, require_signature),
        allow_stale=allow_stale,
        keep_model=keep_model,
        inplace=inplace,
        check_indices=check_indices,
        strict_weights=strict_weights,
    )
    refuse_compiled(model)
    _refuse_recorded(model)
    reading = True  # what is no plan at all is refused, whoever asks
    try:
        given = _given(plan, folder, options.trust)
        if isinstance(given, PlanFolder) and given.plan.workload.kind is Kind.TRAINING:
            if record is not None:
                raise InputError("a plan of a training has no calls whose sizes are recorded; leave out record.")
            return cast(Fast, _trained(model, given, inplace=inplace, strict=strict, allow_stale=allow_stale))
        reading = False
        fast = start(model, given, options)
    except Exception as error:
        if strict or not keep_model or (reading and not isinstance(error, UntrustedPlan)):
            raise
        if isinstance(error, Warning):  # this program makes errors of warnings: that is what it gets
            raise
        text, category, reason = _told(error, plan)
        warn(text, category)
        fast = attach_eager(model, reason, inplace=inplace)
    return fast if record is None else _recorded(fast, record, inplace)


def apply_process(
    plan: Plan | str | os.PathLike[str],
    *,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
) -> dict[str, tuple[Any, Any]]:
    """Give this process the plan's threads and denormal setting; returns what was changed: name -> (before, now).

    It is read by the same rules of trust as for `compile`; what others can change is refused.
    """
    trust = Trust(trusted_keys, require_signature)
    given = _given(plan, None, trust)
    record = opened_bundle(given, trust).plan if isinstance(given, Path) else given.plan
    return apply_settings(record.process)


def _trained(model: nn.Module, given: PlanFolder, *, inplace: bool, strict: bool, allow_stale: bool) -> nn.Module:
    """The model's part of a training step, in place; where the plan does not fit, the model as it is."""
    from compilot.runtime.training_plans import compile_model  # here: few plans are of a training

    try:
        return compile_model(model, given, allow_stale=allow_stale, inplace=inplace)
    except (StalePlan, ArtifactError, Infeasible) as error:
        if strict:
            raise
        text = f"the plan is not used: {str(error).rstrip('.')}. The model stays eager."
        warn(text, StalePlanWarning if isinstance(error, StalePlan) else PlanNotUsedWarning)
        return model


def _refuse_recorded(model: nn.Module) -> None:
    if hasattr(type(model), "_compilot_counts"):
        raise InputError("this model is recorded; pass the original model, and record=FILE to count the calls here.")


def _recorded(fast: Fast, path: str | os.PathLike[str], inplace: bool) -> Fast:
    """The same with its calls counted; a model that was changed in place is as it was where that fails."""
    from compilot.runtime.recording import recorded  # here: most do not record

    try:
        return cast(Fast, recorded(fast, path, inplace=inplace))
    except BaseException:
        restore(fast)
        raise


def _given(
    plan: Plan | str | os.PathLike[str], folder: str | os.PathLike[str] | None, trust: Trust
) -> PlanFolder | Path:
    """What the user means: a bundle by its path, anything else as the plan that it is or holds."""
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        return Path(plan)
    return read_plan(plan, None if folder is None else Path(folder), require_signature=trust.require_signature)


def _told(error: Exception, plan: Plan | str | os.PathLike[str]) -> tuple[str, type[CompilotWarning], str]:
    """A warning that eager answers, its class, and the reason that its answers are counted with."""
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        said = (
            str(error)
            if isinstance(error, CompilotError)
            else f"{Path(plan)} could not be loaded: {first_cause(error)}"
        )
        category = StalePlanWarning if isinstance(error, StalePlan) else PlanNotUsedWarning
        return f"{said} Eager answers instead.", category, f"bundle refused: {said}"
    if isinstance(error, UntrustedPlan | ArtifactError):
        return f"{error} Until then eager answers.", PlanNotUsedWarning, f"plan refused: {error}"
    if isinstance(error, StalePlan):
        return f"{error} Until then eager answers.", StalePlanWarning, f"plan out of date: {error.differences[0]}"
    what = "the plan is not used" if isinstance(error, InputError) else "the engine could not be loaded"
    reason = f"{what}: {first_cause(error)}"
    return f"{reason}; eager answers instead.", PlanNotUsedWarning, reason
