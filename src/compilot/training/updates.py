"""The optimizer's part of a step: the user's own object, stepped in the way that a plan chose.

In: a live optimizer. Out: a callable that does one update, and says why where the user's own step did it instead. What
a variant needs (`fused`, `foreach`) is written into the optimizer's groups only while it steps: state_dict, schedulers
and load_state_dict see the user's own settings, so that nothing can undo the plan. torch's fused kernels read plain
memory and compare no layouts (torch 2.13 computes nonsense for a state that is laid out otherwise than its parameter):
gradients and state are brought to the parameter's layout first. Not covered: compiled updates (compiled_updates.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from compilot.engines.protocol import Infeasible
from compilot.errors import InputError
from compilot.records import OptimizerWay

Update = Callable[[], str | None]  # None: as the plan says; otherwise why the user's own step did it
FLAGS: dict[OptimizerWay, dict[str, bool]] = {
    OptimizerWay.LOOP: {"foreach": False, "fused": False},
    OptimizerWay.FOREACH: {"foreach": True, "fused": False},
    OptimizerWay.FUSED: {"foreach": False, "fused": True},
}
_SPECIAL = ("capturable", "differentiable")  # the user's own wish for another arithmetic: kept


def make_update(
    optimizer: Optimizer, way: OptimizerWay, artifacts: Path | None = None, *, strict: bool = False
) -> Update:
    """One update of this optimizer, this way; Infeasible where it has no such way; strict: and where it fails."""
    refuse_closures(optimizer)
    if way is OptimizerWay.AS_IS:
        return lambda: _own(optimizer)
    if way in FLAGS:
        return _flagged(optimizer, way)
    from compilot.training.compiled_updates import CompiledUpdate  # here: only some plans compile

    return CompiledUpdate(optimizer, way, artifacts, strict=strict)


def refuse_closures(optimizer: Optimizer) -> None:
    """InputError for optimizers that call the loss themselves, several times per step (LBFGS)."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(
            f"{type(optimizer).__name__} calls the loss itself, several times in a step, which train_step cannot do; "
            "keep your own loop, and use compilot.compile(model, plan, inplace=True) for the model."
        )


def special(optimizer: Optimizer) -> str | None:
    """Why this optimizer's groups must be left to its own step; None: nothing speaks against a plan's way."""
    for group in optimizer.param_groups:
        if wish := next((name for name in _SPECIAL if group.get(name)), None):
            return f"the optimizer is {wish}"
    return None


def _own(optimizer: Optimizer) -> None:
    optimizer.step()


class Flags:
    """The settings of one variant in an optimizer's groups, for the time of a step."""

    def __init__(self, optimizer: Optimizer, way: OptimizerWay) -> None:
        flags, groups = FLAGS[way], optimizer.param_groups
        self._wanted = {name: value for name, value in flags.items() if all(name in group for group in groups)}
        if any(value and name not in self._wanted for name, value in flags.items()):
            raise Infeasible(f"{type(optimizer).__name__} has no {way} form")
        self.optimizer = optimizer
        self._way = way
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def write(self) -> str | None:
        """Write them, unless something speaks against it: that is returned, and the groups stay the user's."""
        reason = special(self.optimizer) or _unfit(self.optimizer, self._way)
        if reason is not None:
            return reason
        if self._way is OptimizerWay.FUSED:
            align(self.optimizer)
        groups = self.optimizer.param_groups
        self._before = [(group, {name: group[name] for name in self._wanted}) for group in groups]
        for group in groups:
            group.update(self._wanted)
        return None

    def put_back(self) -> None:
        """Each group's own again."""
        for group, own in self._before:
            group.update(own)
        self._before = []


def _flagged(optimizer: Optimizer, way: OptimizerWay) -> Update:
    flags = Flags(optimizer, way)

    def update() -> str | None:
        reason = flags.write()
        try:
            optimizer.step()
        finally:
            flags.put_back()
        return reason

    return update


def _unfit(optimizer: Optimizer, way: OptimizerWay) -> str | None:
    """What a variant does not do, asked before anything has changed: torch notices it in the middle of a step."""
    if way is OptimizerWay.LOOP:
        return None
    if way is OptimizerWay.FOREACH and any(isinstance(g["lr"], torch.Tensor) for g in optimizer.param_groups):
        return "a learning rate that is a tensor"
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None and gradient.is_sparse:
                return "sparse gradients"
            if way is OptimizerWay.FUSED and not parameter.is_floating_point():
                return "parameters that are no floating-point numbers"
        if way is OptimizerWay.FUSED and isinstance(optimizer, SGD) and _begins_for_some(optimizer, group):
            return "a momentum that some parameters do not have yet"
    return None


def _begins_for_some(optimizer: SGD, group: dict[str, Any]) -> bool:
    """Whether SGD's momentum is there for some parameters of a group and not for others: its fused form raises then."""
    if not group["momentum"]:
        return False
    moved = (parameter for parameter in group["params"] if parameter.grad is not None)
    there = {(optimizer.state.get(parameter) or {}).get("momentum_buffer") is not None for parameter in moved}
    return len(there) > 1


def align(optimizer: Optimizer) -> None:
    """Gradients and state in the layout of their parameters; the values stay."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.dim() > 0:
                _align_one(parameter, optimizer.state.get(parameter) or {})


def _align_one(parameter: torch.Tensor, state: dict[str, Any]) -> None:
    strides = parameter.stride()
    gradient = parameter.grad
    if gradient is not None and gradient.stride() != strides:
        parameter.grad = _like(gradient, parameter)
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.stride() != strides:
            state[name] = _like(value, parameter)


def _like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value.detach())
