"""Plans of a training, as the run plane opens them; and the model's part of one, put in place.

In: what the user gave as a plan, and the model. Out: a `TrainingPlan`: its one entry with the folder of its files,
trusted, compared and fit for this model and machine; or the user's own model, whose calls in train mode are compiled.
Not covered: the step itself and the optimizer (training/), plans of calls (start.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import nn

from compilot._torch.training import is_compiled, is_sharded
from compilot.errors import CompilotWarning, InputError
from compilot.records import CompiledWay, Kind, MemoryFormat, OptimizerWay, Plan, Precision, StepParts, StepRules
from compilot.runtime.model_part import in_place, put_in_place
from compilot.runtime.notices import warn
from compilot.runtime.plans import PlanFolder, plan_source
from compilot.runtime.process import tell_differing
from compilot.runtime.sources import EntryParts

TUNE = "tune a compilot.Training to get one"


class TrainingPlan(NamedTuple):
    """A plan of a training that may be used."""

    rules: StepRules  # as the step was tuned
    part: EntryParts | None  # None: the plan keeps eager's step
    because: str


def is_training(plan: Plan) -> bool:
    """Whether its work is a training step."""
    return plan.workload.kind is Kind.TRAINING


def refuse_sharded(model: nn.Module) -> None:
    """InputError for a model that FSDP has sharded: its weights are not there to be compared with the plan's."""
    if is_sharded(model):
        raise InputError("a model that is sharded (FSDP) is not served; call .compile() on its blocks yourself.")


def refuse_compiled(model: nn.Module) -> None:
    """InputError for a model that somebody has compiled already: it would be compiled twice."""
    if in_place(model):
        how = "call .undo() of what apply_parts returned, or compilot.runtime.restore(model)"
        raise InputError(f"a plan is applied to this model already; undo it first: {how}.")
    for name, module in model.named_modules():
        if is_compiled(module):
            where = f" ({name})" if name else ""
            raise InputError(f"this model is compiled already{where}; pass the original one: the plan compiles it.")


def training_plan(given: PlanFolder, model: nn.Module, allow_stale: bool) -> TrainingPlan:
    """The plan, if it is one of a training and fits; every digest of its files is compared."""
    if not is_training(given.plan):
        raise InputError(f"this is a plan for calls of the model, not for training steps; {TUNE}.")
    inner = getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model
    with in_mode_of(given.plan, inner):
        source = plan_source(given, inner, allow_stale)
    rules = source.plan.workload.step or StepRules()
    if not source.parts:
        return TrainingPlan(rules, None, source.plan.because)
    tell_differing(source.plan.process)
    return TrainingPlan(rules, source.parts[0], source.plan.because)


@contextmanager
def in_mode_of(plan: Plan, model: nn.Module) -> Iterator[None]:
    """The model in the mode that it was tuned in, while it is compared; then each module has its own flag again.

    Models of `from_pretrained` are in eval mode until the first step of a training. One that is in the plan's mode is
    left alone, so that a submodule with a mode of its own (a frozen batch norm) is still compared.
    """
    wanted = plan.entries[0].guard.training if plan.entries else True
    own = [(module, module.training) for module in model.modules()]
    try:
        if model.training != wanted:
            for module, _ in own:
                module.training = wanted
        yield
    finally:
        for module, mode in own:
            module.training = mode


def compile_model(model: nn.Module, given: PlanFolder, *, allow_stale: bool, inplace: bool) -> nn.Module:
    """The user's own model with the plan's model part in place; what else the plan has is said."""
    refuse_sharded(model)
    if not inplace:
        raise InputError(
            "this is a plan of a training step: use compilot.train_step(model, loss, optimizer, plan), or "
            "compilot.compile(model, plan, inplace=True) for the model alone."
        )
    refuse_compiled(model)
    part = training_plan(given, model, allow_stale).part
    if part is not None:
        apply_model_part(model, part)
        if left := left_out(part):
            warn(f"only the model's part of the plan is applied, not {left}; train_step applies all.", CompilotWarning)
    return model


def apply_model_part(model: nn.Module, part: EntryParts) -> None:
    """Have the model's calls answered as the plan says."""
    candidate = part.candidate
    way = candidate.step.compiled
    if way is not CompiledWay.NOTHING:
        put_in_place(model, way, candidate.settings, candidate.regions, part.artifacts)


def left_out(part: EntryParts, *, optimizer: bool = True) -> str:
    """What of a plan the model's part does not have, in words; optimizer=False: that is applied, too."""
    step, found = part.candidate.step, []
    if optimizer and step.optimizer is not OptimizerWay.AS_IS:
        found.append(f"the optimizer's ({step.optimizer})")
    if step.compiled in (CompiledWay.WITH_LOSS, CompiledWay.ONE_GRAPH):
        found.append("the loss and the backward in one program with it")
    if part.candidate.settings.memory_format is not MemoryFormat.PRESERVE:
        found.append("the memory format")
    return ", ".join([*found, *_settings_left_out(step)])


def _settings_left_out(step: StepParts) -> list[str]:
    rows = {
        "compiled autograd": step.compiled_autograd,
        "the memory budget": step.memory_budget is not None,
        "checkpoints": bool(step.checkpoint),
        "autocast": step.autocast is not Precision.AS_IS,
    }
    return [name for name, wanted in rows.items() if wanted]
