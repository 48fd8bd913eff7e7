"""Forward, loss and backward of one micro-batch, in the ways that a plan can choose.

In: the user's model and loss function, the parts of a step, the engine's settings. Out: a `Pass`: called with a batch
it adds the gradients and returns the detached loss. The model is never changed: its calls are answered by compiled
code only while a pass runs. Not covered: when eager runs instead (answering.py), the optimizer (updates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from compilot._torch import training
from compilot._tree import leaves, rebuild
from compilot.engines.protocol import Infeasible
from compilot.errors import InputError
from compilot.modules.regions import selected
from compilot.records import CompiledWay, MemoryFormat, Precision, Region, Settings, StepParts
from compilot.runtime.model_part import AS_EAGER_CASTS, compiled_with, model_calls

Loss = Callable[[nn.Module, Any], torch.Tensor]
AUTOCAST = {Precision.BF16: torch.bfloat16}  # float16 is refused (rules.py): it needs loss scaling


class Work(NamedTuple):
    """What is to be done for a micro-batch, by the user's wish and in the plan's layout."""

    model: nn.Module
    loss: Loss
    accumulate: int = 1
    autocast: Precision = Precision.AS_IS
    channels_last: bool = False

    def forward(self, loss: Loss, batch: Any) -> torch.Tensor:
        """The loss of a batch, by this form of the loss function, under the autocast of the work."""
        with self.casting():
            return loss(self.model, batch)

    def casting(self) -> AbstractContextManager[Any]:
        """The autocast that forward and loss run under."""
        dtype = AUTOCAST.get(self.autocast)
        if dtype is None:
            return nullcontext()
        device = next((p.device.type for p in self.model.parameters()), "cpu")
        return torch.autocast(device, dtype=dtype)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss as the backward takes it: gradients of a window add up to those of its mean."""
        return loss if self.accumulate == 1 else loss / self.accumulate

    def ready(self, batch: Any) -> Any:
        """The batch in the work's layout."""
        if not self.channels_last or not any(map(_has_layout, (leaf.value for leaf in leaves(batch, "batch")))):
            return batch
        return rebuild(batch, lambda _, leaf: _laid_out(leaf), "batch")


def _has_layout(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() == 4


def _laid_out(leaf: Any) -> Any:
    return leaf.contiguous(memory_format=torch.channels_last) if _has_layout(leaf) else leaf


class Means(NamedTuple):
    """What is in force while a pass runs, its backward included: checkpoints call the model again there."""

    calls: training.Calls = {}  # who answers the calls of which modules
    forwards: Mapping[nn.Module, Callable[..., Any]] = {}  # other forwards of submodules
    dynamo: Mapping[str, Any] = {}  # torch's settings
    functorch: Mapping[str, Any] = {}
    autograd: Callable[[], AbstractContextManager[Any]] | None = None  # that captures the backward

    def used(self) -> AbstractContextManager[Any]:
        """A context with all of them."""
        stack = ExitStack()
        if self.dynamo or self.functorch:
            stack.enter_context(training.step_config(self.dynamo, self.functorch))
        if self.forwards:
            stack.enter_context(training.forwarded_by(self.forwards))
        if self.calls:
            stack.enter_context(training.answered_by(self.calls))
        if self.autograd is not None:
            stack.enter_context(self.autograd())
        return stack


class Pass:
    """One way to do forward, loss and backward."""

    def __init__(
        self,
        work: Work,
        means: Means | None = None,
        *,
        loss: Loss | None = None,
        whole: Callable[[nn.Module, Any], torch.Tensor] | None = None,
    ) -> None:
        """loss: another form of the work's own; whole: does everything, the backward included."""
        self._work = work
        self._means = means or Means()
        self._loss = loss or work.loss
        self._whole = whole

    def __call__(self, batch: Any) -> torch.Tensor:
        """Gradients of this batch added; its loss, detached and not divided."""
        with self._means.used():
            if self._whole is not None:
                return self._whole(self._work.model, batch)
            loss = self._work.forward(self._loss, batch)
            check_loss(loss)
            self._work.scaled(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def check_loss(loss: Any) -> None:
    """Raise for what is no scalar with gradients: before anything has changed."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise InputError(f"the loss function returned {what}; return one number: a scalar tensor.")
    if not loss.requires_grad:
        raise InputError("the loss has no gradients; return it with its graph: no .detach(), .item() or no_grad.")


def make_pass(
    work: Work, parts: StepParts, settings: Settings, regions: Sequence[Region], *, donate: bool = True
) -> Pass:
    """The pass that the parts of a plan describe. donate=False: the loss may keep its graph (retain_graph)."""
    way, means = parts.compiled, _means(work, parts, settings, donate)
    if way is CompiledWay.NOTHING:
        return Pass(work, means)
    if way in (CompiledWay.MODEL, CompiledWay.REGIONS):
        return Pass(work, means._replace(calls=model_calls(work.model, way, settings, regions)))
    if way is CompiledWay.WITH_LOSS:
        return Pass(work, means, loss=compiled_with(settings)(work.loss))
    if parts.compiled_autograd:
        raise Infeasible("one graph for forward and backward excludes compiled autograd")
    means = means._replace(dynamo={**means.dynamo, "trace_autograd_ops": True})
    return Pass(work, means, whole=compiled_with(settings)(partial(_one_graph, work)))


def _one_graph(work: Work, model: nn.Module, batch: Any) -> torch.Tensor:
    """Forward, loss and backward, to be compiled as a whole."""
    with work.casting():
        loss = work.loss(model, batch)
    work.scaled(loss).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _means(work: Work, parts: StepParts, settings: Settings, donate: bool) -> Means:
    """What holds for every way to compile."""
    functorch: dict[str, Any] = {}
    if parts.compiled is not CompiledWay.NOTHING:
        functorch = {} if donate else {"donated_buffer": False}
        if parts.memory_budget is not None:
            functorch["activation_memory_budget"] = parts.memory_budget
        if work.autocast is not Precision.AS_IS:
            functorch |= AS_EAGER_CASTS
    autograd = None
    if parts.compiled_autograd:
        functorch["enable_autograd_cache"] = False  # what is found there raises under compiled autograd
        autograd = partial(training.captured_autograd, compiled_with(settings))
    return Means(forwards=_checkpointed(work.model, parts.checkpoint), functorch=functorch, autograd=autograd)


def _checkpointed(model: nn.Module, selector: str) -> dict[nn.Module, Callable[..., Any]]:
    """Submodules that keep no activations: they run once more in the backward."""
    if not selector:
        return {}
    try:
        modules = [model.get_submodule(path) for path in selected(model, selector)]
    except InputError as error:
        raise Infeasible(str(error).rstrip(".")) from error
    return {module: partial(checkpoint, module.forward, use_reentrant=False) for module in modules}


def wants_channels_last(settings: Settings) -> bool:
    """Whether the plan's weights and images are laid out that way."""
    return settings.memory_format is MemoryFormat.CHANNELS_LAST


def lay_out(work: Work) -> None:
    """Give the model's weights the work's layout, in place."""
    if work.channels_last:
        work.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
