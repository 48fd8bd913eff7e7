"""A plan's parts for programs that own the loop: Trainer, accelerate, Lightning, or a loop that stays as it is.

In: the user's model and live optimizer, a plan of a training. Out: an `Applied`: the model's calls in train mode are
compiled, and the optimizer steps as the plan says, by hooks around its own step: its groups have the plan's flags only
meanwhile. `undo` (or leaving its context) puts both back. Compiled updates are the loop's to call, so they are left
out, and a warning says so. Not covered: the loop itself (`train_step` has all of a plan's parts).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn
from torch.optim import Optimizer

from compilot.engines.protocol import Infeasible
from compilot.errors import CompilotWarning, PlanNotUsedWarning
from compilot.records import OptimizerWay, Plan
from compilot.runtime.model_part import in_place, take_out
from compilot.runtime.notices import Stats, added, warn
from compilot.runtime.plans import read_plan
from compilot.runtime.training_plans import apply_model_part, left_out, refuse_compiled, refuse_sharded, training_plan
from compilot.training.updates import FLAGS, Flags

_MARK = "_is_accelerate_prepared"


class Applied:
    """A plan's parts, in force until `undo`."""

    def __init__(self, model: nn.Module, undo_optimizer: Callable[[], None]) -> None:
        self._model = model
        self._undo_optimizer = undo_optimizer

    def stats(self) -> Stats:
        """How the model's calls went: compiled ones are fast; eval mode and other sizes run in eager."""
        return added([door.stats() for door in in_place(self._model).values()])

    def undo(self) -> None:
        """Model and optimizer as they were."""
        take_out(self._model)
        self._undo_optimizer()

    def __enter__(self) -> Applied:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def apply_parts(
    model: nn.Module,
    optimizer: Optimizer | None,
    plan: Plan | str | os.PathLike[str],
    *,
    allow_stale: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> Applied:
    """The plan's parts for this model and optimizer, while somebody else runs the loop. None: the model's part only."""
    refuse_sharded(model)
    refuse_compiled(model)
    given = read_plan(plan, None if folder is None else Path(folder))
    with _as_it_was(model):
        part = training_plan(given, model, allow_stale).part
    if part is None:
        return Applied(model, lambda: None)
    way = part.candidate.step.optimizer
    flags = _flags(optimizer, way) if optimizer is not None and way in FLAGS else None
    apply_model_part(model, part)
    if left := left_out(part, optimizer=way not in FLAGS and optimizer is not None):
        warn(f"the loop is not compilot's, so the plan is applied without {left}.", CompilotWarning)
    return Applied(model, _hooked(flags) if flags is not None else lambda: None)


def flag_steps(optimizer: Optimizer, way: OptimizerWay) -> Callable[[], None]:
    """Have each step of this optimizer done in this way; returns what ends it."""
    return _hooked(Flags(unwrapped(optimizer), way))


def _flags(optimizer: Optimizer, way: OptimizerWay) -> Flags | None:
    """The plan's variant of this optimizer; None, with a warning: it has none."""
    try:
        return Flags(unwrapped(optimizer), way)
    except Infeasible as cause:
        warn(f"{cause}; the plan is applied without the optimizer's part, which steps as it is.", PlanNotUsedWarning)
        return None


def _hooked(flags: Flags) -> Callable[[], None]:
    """Hooks that write the flags before each step and put them back after it; returns what ends it."""

    def write() -> None:
        flags.put_back()  # a step that raised has not
        flags.write()

    def before(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (later := _after_closure(args, kwargs, write)) is not None:
            return later
        write()
        return None

    def after(*_: Any) -> None:
        flags.put_back()

    own = flags.optimizer
    hooks = own.register_step_pre_hook(before), own.register_step_post_hook(after)

    def undo() -> None:
        flags.put_back()
        for hook in hooks:
            hook.remove()

    return undo


def _after_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], write: Callable[[], None]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Arguments of a step with `write` after its closure, which makes the gradients (Lightning's); None: it has none.

    Optimizers call it first of all, so that this step's own gradients are looked at.
    """
    optimizer, *rest = args
    closure = kwargs.get("closure", rest[0] if rest else None)
    if not callable(closure):
        return None

    def then_written() -> Any:
        loss = closure()
        write()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": then_written}
    return (optimizer, then_written, *rest[1:]), kwargs


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer itself, where a framework has wrapped it."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """The model without the mark that accelerate leaves on it, by which it is not the tuned one."""
    mark = vars(model).pop(_MARK, None)
    try:
        yield
    finally:
        if mark is not None:
            setattr(model, _MARK, mark)
