"""Apply a plan to a training loop: one line, the user's own model and optimizer.

In: model, loss function, live optimizer, and a plan of a training. Out: a `TrainStep`. `accumulate`, `clip_norm` and
`autocast` are the plan's; other values are taken and named in a warning. A plan that does not fit, cannot be trusted or
cannot be built is explained, and eager's step is returned. Not covered: schedulers (the user's own), data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import UNSET, UnsetType
from torch import nn
from torch.optim import Optimizer

from compilot.artifacts.bundle import is_bundle
from compilot.engines.protocol import Infeasible
from compilot.errors import (
    ArtifactError,
    InputError,
    PlanNotUsedWarning,
    StalePlan,
    StalePlanWarning,
    UnprovenSpeedWarning,
    UntrustedPlan,
)
from compilot.identity.functions import function_sha256
from compilot.records import Plan, Precision, StepRules
from compilot.runtime.notices import warn
from compilot.runtime.plans import PlanFolder, read_plan
from compilot.runtime.training_plans import TrainingPlan, is_training, refuse_compiled, refuse_sharded, training_plan
from compilot.training.building import make_step
from compilot.training.passes import Loss
from compilot.training.rules import checked_accumulate, checked_clip_norm, precision_of
from compilot.training.step import TrainStep

_OTHER_LOSS = "the plan was made with a loss function of other code"
_REFUSED = (StalePlan, UntrustedPlan, ArtifactError, Infeasible)  # eager trains instead; mistakes of a call raise


def train_step(
    model: nn.Module,
    loss: Loss,
    optimizer: Optimizer,
    plan: Plan | str | os.PathLike[str],
    *,
    accumulate: int | UnsetType = UNSET,
    clip_norm: float | UnsetType | None = UNSET,
    autocast: Precision | torch.dtype | str | UnsetType | None = UNSET,
    strict: bool = False,
    allow_stale: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> TrainStep:
    """A step of the training loop as the plan says: `loss = step(batch)`.

    loss(model, batch) returns a scalar. Each call takes one micro-batch: gradients are zeroed at the start of a window
    of `accumulate` of them, each loss is divided by `accumulate` before its backward, and at the end of the window
    gradients are clipped and the optimizer steps. The returned loss is detached and not divided. Step your scheduler
    yourself. Model and optimizer stay your own objects, with the same state_dict; checkpoints load with and without
    compilot.

    strict=True raises where the plan cannot be used; otherwise a warning says why, and eager's step is returned.
    folder: where the plan's files lie, when the plan is not given as a file.
    """
    refuse_sharded(model)
    refuse_compiled(model)
    given = _given(plan, folder)
    rules = _rules(given.plan, accumulate, clip_norm, autocast)
    try:
        found = training_plan(given, model, allow_stale)
        _refuse_other_loss(given.plan, model, loss, allow_stale)
        return _made(model, loss, optimizer, found, rules, own_autocast=autocast is not UNSET)
    except _REFUSED as error:
        if strict:
            raise
        warn(_told(error), StalePlanWarning if isinstance(error, StalePlan) else PlanNotUsedWarning)
        return _eager(model, loss, optimizer, rules)


def _given(plan: Plan | str | os.PathLike[str], folder: str | os.PathLike[str] | None) -> PlanFolder:
    if not isinstance(plan, Plan) and is_bundle(Path(plan)):
        raise InputError(f"{plan} is a bundle, which holds no training step; give the plan or its run directory.")
    given = read_plan(plan, None if folder is None else Path(folder))
    if not is_training(given.plan):
        raise InputError("this is a plan for calls of the model; use compilot.compile, or tune a compilot.Training.")
    return given


def _refuse_other_loss(plan: Plan, model: nn.Module, loss: Loss, allow_stale: bool) -> None:
    """StalePlan where the plan was judged with a loss of other code: nobody has seen these gradients."""
    tuned = plan.workload.loss_sha256
    if tuned is None or not plan.entries or function_sha256(loss, model) == tuned:
        return
    if not allow_stale:
        raise StalePlan(f"{_OTHER_LOSS}; tune again with this loss, or pass allow_stale=True", (_OTHER_LOSS,))
    warn(f"{_OTHER_LOSS}: its gradients were not checked.", UnprovenSpeedWarning)


def _told(error: Exception) -> str:
    text = str(error).rstrip(".")
    return f"the plan is not used: {text}. Eager trains instead."


def _rules(plan: Plan, accumulate: Any, clip_norm: Any, autocast: Any) -> StepRules:
    """The plan's, with what the user wants otherwise; a warning names that."""
    own = plan.workload.step or StepRules()
    measured = msgspec.structs.replace(own, autocast=_autocast(plan, own))
    wanted: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "accumulate": (accumulate, checked_accumulate),
        "clip_norm": (clip_norm, checked_clip_norm),
        "autocast": (autocast, precision_of),
    }
    given = {name: checked(value) for name, (value, checked) in wanted.items() if value is not UNSET}
    changed = {name: value for name, value in given.items() if value != getattr(measured, name)}
    if changed:
        told = ", ".join(f"{name}={value} (the plan has {getattr(measured, name)})" for name, value in changed.items())
        warn(f"the plan was measured and checked with other settings: {told}.", UnprovenSpeedWarning)
    return msgspec.structs.replace(own, **given)


def _autocast(plan: Plan, own: StepRules) -> Precision:
    """What the plan's step was measured with: its candidate's, where that has one."""
    chosen = plan.entries[0].candidate.step.autocast if plan.entries else Precision.AS_IS
    return own.autocast if chosen is Precision.AS_IS else chosen


def _made(
    model: nn.Module, loss: Loss, optimizer: Optimizer, plan: TrainingPlan, rules: StepRules, *, own_autocast: bool
) -> TrainStep:
    """own_autocast: the user has said which, so the candidate's own does not count."""
    if plan.part is None:
        return _eager(model, loss, optimizer, rules)
    candidate = plan.part.candidate
    parts = msgspec.structs.replace(candidate.step, autocast=Precision.AS_IS) if own_autocast else candidate.step
    return make_step(
        model,
        loss,
        optimizer,
        parts,
        settings=candidate.settings,
        regions=candidate.regions,
        accumulate=rules.accumulate,
        clip_norm=rules.clip_norm,
        autocast=rules.autocast,
        guard=plan.part.guard,
        artifacts=plan.part.artifacts,
        label=candidate.label,
    )


def _eager(model: nn.Module, loss: Loss, optimizer: Optimizer, rules: StepRules) -> TrainStep:
    return make_step(
        model,
        loss,
        optimizer,
        accumulate=rules.accumulate,
        clip_norm=rules.clip_norm,
        autocast=rules.autocast,
    )
