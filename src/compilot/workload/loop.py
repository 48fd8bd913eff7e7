"""One live training: a model, its optimizer and scheduler, and the step that moves them; all of it saved and put back.

In: a Training, and who makes the step (eager's plain one unless told otherwise). Out: `Loop`: `window(batches)` makes
one whole step, `save` and `restore` what it changes: parameters, buffers, the optimizer's state and settings, the
scheduler, every module's mode, gradients, the place in the window, random numbers. Tensors get their values back in
place, because compiled code knows them by identity. `portable`: the same as a file that other processes load, by name.
Not covered: state in plain attributes of modules; what is timed and when (steps.py).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from compilot.records import StepRules
from compilot.workload.eager_step import EagerStep
from compilot.workload.state import RandomState


class Step(Protocol):
    """What moves a training forward by one micro-batch."""

    def __call__(self, batch: Any) -> Tensor: ...
    def clip_and_step(self) -> None: ...
    def restart_window(self) -> None: ...


class Trains(Protocol):
    """What a loop needs of its workload."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def loss(self) -> Callable[[nn.Module, Any], Tensor]: ...
    @property
    def rules(self) -> StepRules: ...
    @property
    def make_optimizer(self) -> Callable[[Any], Optimizer]: ...
    @property
    def make_scheduler(self) -> Callable[[Optimizer], Any] | None: ...


MakeStep = Callable[[nn.Module, Callable[[nn.Module, Any], Tensor], Optimizer], Step]


class LoopState(NamedTuple):
    """What restore() puts back."""

    tensors: dict[str, Tensor]
    plain: dict[str, Any]  # of the optimizer's state: what is no tensor
    groups: list[dict[str, Any]]  # settings of each parameter group
    advanced: int  # how often the scheduler has moved
    scheduler: dict[str, Any] | None  # None: there is none, or another process's own
    modes: dict[str, bool]
    random: RandomState | None = None  # None: another process's own


class Loop:
    """A training that can go on, and go back."""

    def __init__(self, workload: Trains, make: MakeStep | None = None, model: nn.Module | None = None) -> None:
        """make: who makes the step; model: in the place of the workload's own, such as its copy in float64."""
        self.model = workload.model if model is None else model
        self.rules = workload.rules
        self.optimizer = workload.make_optimizer(self.model.parameters())
        self.scheduler = None if workload.make_scheduler is None else workload.make_scheduler(self.optimizer)
        self._scheduler_begin = _scheduler_state(self.scheduler)
        plain = EagerStep(self.model, workload.loss, self.optimizer, self.rules)
        self.step: Step = plain if make is None else make(self.model, workload.loss, self.optimizer)
        self._advanced = 0
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}

    @property
    def parameters(self) -> list[Tensor]:
        """Those that the optimizer moves, in its order."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def name_of(self, parameter: Tensor) -> str:
        """As the model calls it; by its place where the model has no such parameter."""
        return self._names.get(parameter) or f"parameter {[id(p) for p in self.parameters].index(id(parameter))}"

    def __call__(self, batch: Any) -> Tensor:
        """One micro-batch."""
        return self.step(batch)

    def window(self, batches: Sequence[Any]) -> list[Tensor]:
        """One whole step over so many micro-batches; their losses."""
        losses = [self.step(batch) for batch in batches]
        self.advance()
        return losses

    def advance(self) -> None:
        """Move the scheduler, as a program does after every update; one that is at its end begins again."""
        if self.scheduler is None:
            return
        self._advanced += 1
        try:
            self.scheduler.step()
        except ValueError:  # OneCycleLR and others know how many steps there are
            self.scheduler.load_state_dict(copy.deepcopy(self._scheduler_begin))
            self.scheduler.step()

    def gradients(self) -> dict[str, Tensor | None]:
        """What is in p.grad, by name."""
        return {self.name_of(parameter): parameter.grad for parameter in self.parameters}

    # ----------------------------------------------------------------------------------------------- back and forth

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a step may change, by name."""
        found = {f"parameter {name}": p.detach() for name, p in self.model.named_parameters()}
        found |= {f"buffer {name}": buffer for name, buffer in self.model.named_buffers()}
        return found | {name: value for name, value in self._optimizer_state() if isinstance(value, Tensor)}

    def save(self) -> LoopState:
        """A copy of everything that a step may change."""
        plain = {name: copy.deepcopy(value) for name, value in self._optimizer_state() if not isinstance(value, Tensor)}
        return LoopState(
            {name: tensor.detach().clone() for name, tensor in self.tensors().items()},
            plain,
            [_settings(group) for group in self.optimizer.param_groups],
            self._advanced,
            _scheduler_state(self.scheduler),
            {name: module.training for name, module in self.model.named_modules()},
            RandomState.now(),
        )

    def restore(self, state: LoopState) -> None:
        """Put everything back, in place; what the optimizer has made since is forgotten."""
        self._make_missing(state)
        live = self.tensors()
        with torch.no_grad():
            for name, values in state.tensors.items():
                live[name].copy_(values)
        for key, (parameter, name) in self._optimizer_places():
            if key in state.plain:
                self.optimizer.state[parameter][name] = copy.deepcopy(state.plain[key])
            elif key not in state.tensors:
                del self.optimizer.state[parameter][name]
        self._restore_scheduler(state)
        for group, settings in zip(self.optimizer.param_groups, state.groups, strict=True):
            _set_back(group, settings)
        for name, module in self.model.named_modules():
            module.training = state.modes.get(name, module.training)
        self.forget_gradients()
        self.step.restart_window()
        if state.random is not None:
            state.random.put_back()

    def _make_missing(self, state: LoopState) -> None:
        """An optimizer that has not moved yet gets the state that is to be put back."""
        known = dict(self._optimizer_places())
        for parameter in self.parameters:
            begin = f"optimizer {self.name_of(parameter)}."
            for key in (key for key in state.tensors if key.startswith(begin) and key not in known):
                like = state.tensors[key]
                own = like.to(parameter.dtype) if like.shape == parameter.shape else like
                self.optimizer.state[parameter][key.removeprefix(begin)] = own.clone()

    def _restore_scheduler(self, state: LoopState) -> None:
        """As it was, or as it is after so many moves where the state comes from another process."""
        if self.scheduler is None:
            return
        known = state.scheduler if state.scheduler is not None else self._scheduler_begin
        self.scheduler.load_state_dict(copy.deepcopy(known))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it moves here without the optimizer: both are put back
            for _ in range(state.advanced if state.scheduler is None else 0):
                self.advance()
        self._advanced = state.advanced

    def forget_gradients(self) -> None:
        """As before the first backward."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def change_rate(self, times: float) -> None:
        """What a scheduler does to the learning rate; in place where it is a tensor."""
        for group in self.optimizer.param_groups:
            _set_back(group, {"lr": float(group["lr"]) * times})

    def _optimizer_places(self) -> Iterator[tuple[str, tuple[Tensor, str]]]:
        for parameter, state in list(self.optimizer.state.items()):
            for name in list(state):
                yield f"optimizer {self.name_of(parameter)}.{name}", (parameter, name)

    def _optimizer_state(self) -> Iterator[tuple[str, Any]]:
        for key, (parameter, name) in self._optimizer_places():
            yield key, self.optimizer.state[parameter][name]


def write(state: LoopState, path: Path) -> None:
    """Keep a state for other processes of the run, as plain data."""
    torch.save(state._replace(random=None, scheduler=None)._asdict(), path)


def read(path: Path) -> LoopState:
    """A state that `write` kept."""
    return LoopState(**torch.load(path, weights_only=True))


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """What schedulers and users change in a group; how the optimizer works (fused, foreach) is the candidate's."""
    own = {name: value for name, value in group.items() if name not in _NOT_STATE}
    return {name: value.item() if isinstance(value, Tensor) else copy.deepcopy(value) for name, value in own.items()}


_NOT_STATE = ("params", "param_names", "fused", "foreach", "capturable", "differentiable")


def _set_back(group: dict[str, Any], settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        live = group.get(name)
        if isinstance(live, Tensor):
            live.fill_(value)
        elif isinstance(live, tuple | list) and any(isinstance(one, Tensor) for one in live):
            for one, number in zip(live, value, strict=True):
                one.fill_(number)  # betas as tensors
        else:
            group[name] = copy.deepcopy(value)


def _scheduler_state(scheduler: Any) -> dict[str, Any] | None:
    return None if scheduler is None else copy.deepcopy(scheduler.state_dict())
