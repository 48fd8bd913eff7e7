"""Training as a workload: the step that a program really runs, with everything that it changes.

In: a model, its loss, factories of the optimizer and the scheduler, batches (a list, or a function of a seed). Out:
`Training`, a Workload whose unit of work is one whole step (steps.py). Its example calls are those that the loss makes
of the model, found by running it once in eager; then the model is as it was. Live objects travel to children as any
workload's; optimizer and scheduler are made there, by their factories.
Covered: accumulation, clipping, schedulers, autocast, a loader whose time is part of the step. Not covered: several
models or optimizers (GANs), losses that need a second backward, training over several processes, batches of several
sizes: those of the first one's are timed and judged.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from compilot._tree import Call
from compilot.errors import InputError
from compilot.identity.functions import function_sha256
from compilot.records import Kind, Precision, StepRules, WorkloadRef
from compilot.training.rules import checked_accumulate, checked_clip_norm, precision_of
from compilot.workload.copying import copy_call
from compilot.workload.state import Kept, RandomState
from compilot.workload.steps import loader_batches, sizes_of
from compilot.workload.workload import Workload, check_loader, check_model

Loss = Callable[[nn.Module, Any], Tensor]
OptimizerFactory = Callable[[Iterable[Any]], Optimizer]
SchedulerFactory = Callable[[Optimizer], Any]
Batches = Sequence[Any] | Callable[[int], Any]

MADE = 8  # batches made from seeds; of a loader so many are taken to judge by
_LOSS = "def loss(model, batch): return F.cross_entropy(model(batch[0]), batch[1])"
_OPTIMIZER = "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"


class Training(Workload):
    """A model, how it is trained, and the batches it is measured and judged with.

    `loss(model, batch)` calls the model and returns a scalar. `optimizer(parameters)` makes the optimizer and
    `scheduler(optimizer)` its scheduler, which moves once after every update. `batches` is a list of them, or a
    function of a seed that returns one; those of a list with other sizes than the first are left out. A step is
    `accumulate` batches, clipped to `clip_norm`, and one update.

    `loader`: a DataLoader (or any iterable of batches, or a function that returns one); a step is then measured with
    its data, and the report says how much of it is waiting. Without `batches` the first ones of the loader are used.
    `autocast` is the dtype that the loop runs the loss in (torch.bfloat16, or "bf16"); None: none.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: OptimizerFactory,
        batches: Batches | None = None,
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        scheduler: SchedulerFactory | None = None,
        autocast: torch.dtype | str | None = None,
        loader: Any = None,
        seed: int = 0,
        label: str | None = None,
    ) -> None:
        check_model(model)
        self.loss: Loss = _function(loss, "loss", _LOSS)
        self.make_optimizer: OptimizerFactory = _factory(optimizer)
        self.make_scheduler: SchedulerFactory | None = _scheduler(scheduler)
        self.rules = _rules(accumulate, clip_norm, autocast)
        self._batches = _given(batches, loader)
        self.seed = seed
        looked_at = () if check_loader(loader) is None else tuple(itertools.islice(loader_batches(loader), MADE))
        if self._batches is None:
            self._batches = _given(looked_at, None)
        first = self.batches[0]
        self.one_size = _mostly(first, looked_at)  # batches of the loader with other sizes are passed over
        self._mixed = self.one_size and (_uneven(loader) or bool(_others(first, looked_at)))
        if self._batches is not None and not callable(self._batches):
            self._mixed = self._mixed or bool(_others(first, self._batches))
            self._batches = tuple(batch for batch in self._batches if sizes_of(batch) == sizes_of(first))
        calls = calls_of_loss(model, self.loss, first)
        super().__init__(model, examples=calls[:1], seed=seed, grad=True, label=label, loader=loader)
        self.kind = Kind.TRAINING
        _check_optimizer(self.make_optimizer, self.model, self.make_scheduler)

    @property
    def batches(self) -> tuple[Any, ...]:
        """The batches that are timed and judged, at least as many as a step takes."""
        return self.batches_of(self.seed)

    def batches_of(self, seed: int, count: int = MADE) -> tuple[Any, ...]:
        """The same for another seed; those of a list come in another order."""
        assert self._batches is not None  # since __init__
        most = max(count, self.rules.accumulate)
        if callable(self._batches):
            return tuple(self._batches(seed + number) for number in range(most))
        start = (seed - self.seed) % len(self._batches)
        return tuple(self._batches[(start + number) % len(self._batches)] for number in range(len(self._batches)))

    @property
    def ref(self) -> WorkloadRef:
        """The record of this workload, with what a step is."""
        return msgspec.structs.replace(super().ref, step=self.rules, loss_sha256=self._loss_sha256)

    @functools.cached_property
    def _loss_sha256(self) -> str:
        return function_sha256(self.loss, self.model)

    @property
    def notes(self) -> list[str]:
        """What the user should know before measuring."""
        own = [_EVAL_MODE] if not self.model.training else []
        return [*super().notes, *own, *([_OTHER_SIZES] if self._mixed else [])]

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's own functions, which travel with the model."""
        made = self._batches if callable(self._batches) else None
        return (*super().functions, self.loss, self.make_optimizer, self.make_scheduler, made)

    def samples_per_call(self) -> int | None:
        """Samples of one step: those of all its micro-batches."""
        one = super().samples_per_call()
        return None if one is None else one * self.rules.accumulate

    def without_autocast(self) -> Training:
        """The same training in the precision of its tensors."""
        new = copy.copy(self)
        new.rules = msgspec.structs.replace(self.rules, autocast=Precision.AS_IS)
        return new

    def with_examples(self, calls: Sequence[Call]) -> Workload:
        """The model alone, on other calls."""
        new = Workload(self.model, examples=list(calls), seed=self.seed, grad=True, label=self.label)
        new.target, new.payload_sha256 = self.target, self.payload_sha256
        return new


_EVAL_MODE = (
    "the model is in eval mode: dropout is off and batch norm keeps its statistics while it trains; "
    "call model.train() in the factory unless that is meant"
)


_OTHER_SIZES = "batches of other sizes than the first one's run in eager and are not timed"


_PLATEAU = "ReduceLROnPlateau moves by a metric, which a measured step does not have; leave the scheduler out."


def _others(first: Any, batches: Sequence[Any]) -> list[Any]:
    """Those of other sizes."""
    sizes = sizes_of(first)
    return [batch for batch in batches if sizes_of(batch) != sizes]


def _mostly(first: Any, batches: Sequence[Any]) -> bool:
    """Whether most are of the first one's sizes: of a loader whose sizes always change nothing is passed over."""
    return 2 * len(_others(first, batches)) < len(batches)


def _uneven(loader: Any) -> bool:
    """Whether a DataLoader ends with a smaller batch."""
    try:
        return not loader.drop_last and bool(len(loader.dataset) % loader.batch_size)
    except (AttributeError, TypeError):
        return False  # any other iterable, or nobody knows how long it is


def calls_of_loss(model: nn.Module, loss: Loss, batch: Any) -> list[Call]:
    """The calls of the model that the loss makes for one batch; buffers and random numbers are as before."""
    found: list[Call] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append(copy_call(Call(args, kwargs)))

    kept, random = [Kept.of(buffer) for buffer in model.buffers()], RandomState.now()
    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        _check_value(_tried(model, loss, batch))
    finally:
        handle.remove()
        random.put_back()
        for one in kept:
            one.put_back()
    if not found:
        raise InputError(f"the loss never calls the model it is given; it looks like this: {_LOSS}.")
    return found


def _tried(model: nn.Module, loss: Loss, batch: Any) -> Any:
    try:
        with torch.enable_grad():
            return loss(model, batch)
    except Exception as problem:
        first = " ".join(str(problem).split())[:200]
        raise InputError(
            f"loss(model, batch) failed with {type(problem).__name__}: {first}; it looks like this: {_LOSS}."
        ) from problem


def _check_value(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(f"loss(model, batch) returned {shape}; it must return a scalar tensor.")
    if not value.requires_grad:
        raise InputError(
            "the loss depends on no parameter that requires a gradient, so there is nothing to train; "
            "leave out no_grad and detach, and set requires_grad where it is missing."
        )


def _function(value: Any, name: str, example: str) -> Any:
    if isinstance(value, nn.Module):
        raise InputError(f"{name} is a module; wrap it in a function of the model and a batch: {example}.")
    if not callable(value):
        raise InputError(f"{name} must be a function of the model and a batch: {example}.")
    return value


def _factory(optimizer: Any) -> OptimizerFactory:
    if isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise InputError(
            f"optimizer is a live {kind}; give a function that makes it, since every worker needs its own: "
            f"lambda parameters: torch.optim.{kind}(parameters, ...)."
        )
    if not callable(optimizer):
        raise InputError(f"optimizer must be a function that makes one from parameters: {_OPTIMIZER}.")
    return optimizer  # type: ignore[no-any-return]


def _scheduler(scheduler: Any) -> SchedulerFactory | None:
    if scheduler is not None and (not callable(scheduler) or hasattr(scheduler, "state_dict")):
        raise InputError(
            "scheduler must be a function that makes one from an optimizer: "
            "lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, 1000)."
        )
    return scheduler  # type: ignore[no-any-return]


def _rules(accumulate: Any, clip_norm: Any, autocast: Any) -> StepRules:
    return StepRules(
        accumulate=checked_accumulate(accumulate),
        clip_norm=checked_clip_norm(clip_norm),
        autocast=precision_of(autocast),
    )


def _given(batches: Any, loader: Any) -> Batches | None:
    if batches is None and loader is not None:
        return None  # the loader's first ones
    if callable(batches):
        return batches  # type: ignore[no-any-return]
    if not isinstance(batches, list | tuple) or not batches:
        raise InputError("batches must be a list with at least one batch, or a function of a seed that returns one.")
    return tuple(batches)


def _check_optimizer(make: OptimizerFactory, model: nn.Module, scheduler: SchedulerFactory | None) -> None:
    try:
        made = make(model.parameters())
        if isinstance(made, Optimizer) and scheduler is not None:
            moves = scheduler(made)
            if not hasattr(moves, "step"):
                raise InputError(f"scheduler(optimizer) returned a {type(moves).__name__}, which has no step().")
            if isinstance(moves, torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise InputError(_PLATEAU)
    except InputError:
        raise
    except Exception as problem:
        what = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        raise InputError(f"making the optimizer or its scheduler failed with {what}; fix the factory.") from problem
    if isinstance(made, torch.optim.LBFGS):
        raise InputError(
            "LBFGS calls the loss several times within one step, so there is no single forward and backward to tune; "
            "use another optimizer, or tune the model alone: compilot.Workload(model, args, grad=True)."
        )
    if not isinstance(made, Optimizer):
        raise InputError(f"optimizer(parameters) returned a {type(made).__name__}; return the optimizer: {_OPTIMIZER}.")
