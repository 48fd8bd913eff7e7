"""Eager's own training loop, as people write it. In: a model, its loss, an optimizer, the rules. Out: a step.

This is the baseline: what every candidate is timed against and judged by. One call takes one micro-batch; gradients are
set to None at the start of a window, and at its end clipped (all of the model's, as `train_step` does) and given to the
optimizer. They stay in `p.grad` until the next window begins. An error drops the window.
Covered: accumulation, clipping, autocast. Not covered: the user's scheduler (steps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from compilot.records import Precision, StepRules

_DTYPES = {Precision.BF16: torch.bfloat16}  # float16 is refused: it needs loss scaling


class EagerStep:
    """The plain loop's step."""

    def __init__(
        self, model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], optimizer: Optimizer, rules: StepRules
    ) -> None:
        self.model, self.loss, self.optimizer, self.rules = model, loss, optimizer, rules
        self._parameters = list(model.parameters())
        moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._unmoved = [p for p in self._parameters if id(p) not in moved]  # in no group of the optimizer
        self._place = 0  # in the window

    def __call__(self, batch: Any) -> Tensor:
        """One micro-batch; the loss, detached and not divided."""
        accumulate = self.rules.accumulate
        if self._place == 0:
            self.zero_grad()
        place, self._place = self._place, 0  # an error drops the window
        with autocast(self.rules.autocast):
            value = self.loss(self.model, batch)
        (value / accumulate if accumulate > 1 else value).backward()  # type: ignore[no-untyped-call]
        if place + 1 == accumulate:
            self.clip_and_step()
        else:
            self._place = place + 1
        return value.detach()

    def zero_grad(self) -> None:
        """No gradients; also of what is in no group, which would be clipped with the others."""
        self.optimizer.zero_grad(set_to_none=True)
        for parameter in self._unmoved:
            parameter.grad = None

    def update(self) -> bool:
        """End a window that has begun; False: none has, nothing is done."""
        if self._place == 0:
            return False
        self.clip_and_step()
        return True

    def clip_and_step(self) -> None:
        """Clip the gradients that are there, whoever made them, and step the optimizer; a loop calls `update`."""
        self._place = 0
        if self.rules.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.rules.clip_norm)
        self.optimizer.step()

    def restart_window(self) -> None:
        """The next batch begins a window."""
        self._place = 0


def autocast(precision: Precision) -> AbstractContextManager[Any]:
    """Autocast of the CPU to a precision; nothing where there is none."""
    dtype = _DTYPES.get(precision)
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)
