"""From the parts of a plan to a step: the builder that the tuner and the user share.

In: live model, loss function and optimizer, `StepParts`, the engine's settings. Out: a `TrainStep`. Nothing is compiled
yet: that happens at the first batches. What the parts cannot do with these objects is Infeasible, in one sentence.
Not covered: plans (apply.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from compilot._torch.training import gradient_hook, is_sharded
from compilot.engines.protocol import Infeasible
from compilot.records import CompiledWay, Guard, Precision, Region, Settings, StepParts
from compilot.runtime.training_plans import refuse_compiled
from compilot.training.answering import Answering
from compilot.training.listeners import Listeners
from compilot.training.passes import Loss, Pass, Work, lay_out, make_pass, wants_channels_last
from compilot.training.rules import checked_accumulate, checked_clip_norm, refuse_half
from compilot.training.step import TrainStep
from compilot.training.updates import make_update

EAGER = StepParts()
PLAIN = Settings()


def make_step(
    model: nn.Module,
    loss: Loss,
    optimizer: Optimizer,
    parts: StepParts = EAGER,
    *,
    settings: Settings = PLAIN,
    regions: Sequence[Region] = (),
    accumulate: int = 1,
    clip_norm: float | None = None,
    autocast: Precision = Precision.AS_IS,
    guard: Guard | None = None,
    artifacts: Path | None = None,
    strict: bool = False,
    label: str = "eager",
) -> TrainStep:
    """A step of these parts over the user's own objects.

    guard: of the call `(batch,)`; what it does not take runs in eager (None: every batch is taken). artifacts: the
    folder that compiled code is kept in, so that a restarted process does not compile again (None: torch's own cache).
    strict: a pass or an update that fails is Infeasible; otherwise eager runs it.
    """
    accumulate, clip_norm = checked_accumulate(accumulate), checked_clip_norm(clip_norm)
    casting = autocast if parts.autocast is Precision.AS_IS else parts.autocast
    refuse_half(casting)
    refuse(model, parts)
    update = make_update(optimizer, parts.optimizer, artifacts, strict=strict)
    work = Work(model, loss, accumulate, casting, wants_channels_last(settings))
    run = Answering(
        work,
        _maker(work, parts, settings, regions),
        guard=guard,
        artifacts=artifacts,
        listeners=Listeners(model) if parts.compiled is CompiledWay.ONE_GRAPH else None,
        strict=strict,
    )
    lay_out(work)  # last: what cannot be built has changed nothing
    return TrainStep(model, optimizer, run, update, accumulate=accumulate, clip_norm=clip_norm, label=label)


def _maker(work: Work, parts: StepParts, settings: Settings, regions: Sequence[Region]) -> partial[Pass] | None:
    """What makes the plan's pass; None: it is eager's own."""
    if parts.compiled is CompiledWay.NOTHING and not parts.checkpoint and not parts.compiled_autograd:
        return None
    return partial(_made, work, parts, settings, regions)


def _made(work: Work, parts: StepParts, settings: Settings, regions: Sequence[Region], donate: bool) -> Pass:
    return make_pass(work, parts, settings, regions, donate=donate)


def refuse(model: nn.Module, parts: StepParts) -> None:
    """Infeasible for what these parts cannot do with this model."""
    if is_sharded(model):
        raise Infeasible("a model that is sharded (FSDP) is not served: call .compile() on its blocks yourself")
    if parts.compiled is not CompiledWay.NOTHING:
        refuse_compiled(model)
    if parts.compiled_autograd and isinstance(model, DistributedDataParallel):
        raise Infeasible("compiled autograd does not work with DDP's own reducer")
    if parts.compiled is not CompiledWay.ONE_GRAPH:
        return
    if isinstance(model, DistributedDataParallel):
        raise Infeasible("one graph for forward and backward would leave out what DDP does with gradients")
    if where := gradient_hook(model):
        raise Infeasible(f"one graph for forward and backward would leave out the gradient hook of {where}")
