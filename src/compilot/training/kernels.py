"""The arithmetic of Adam, AdamW and SGD for one parameter, written to be compiled.

In: a parameter, its gradient and state (changed in place), and the numbers of this step in one float64 tensor: learning
rates, betas and bias corrections are data, so that no schedule makes a new program, and they are computed in Python's
double precision as eager does. Out: nothing. Not covered: which tensors there are (compiled_updates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

Kernel = Callable[..., None]  # parameter, gradient, state ..., numbers


class AdamForm(NamedTuple):
    """What is fixed for a group of Adam or AdamW."""

    decoupled: bool
    decay: bool
    maximize: bool
    amsgrad: bool

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> AdamForm:
        """Of one parameter group."""
        decay = group["weight_decay"] != 0
        return cls(group["decoupled_weight_decay"], decay, group["maximize"], group["amsgrad"])

    def numbers(self, group: Mapping[str, Any], step: float) -> list[float]:
        """What this step computes with; step: the number of the update, from 1."""
        (beta1, beta2), lr, decay = map(float, group["betas"]), float(group["lr"]), float(group["weight_decay"])
        size, root = lr / (1 - beta1**step), (1 - beta2**step) ** 0.5
        return [1 - lr * decay if self.decoupled else decay, 1 - beta1, beta2, 1 - beta2, -size, root, group["eps"]]

    def update(self, parameter: Tensor, gradient: Tensor, *state_and_numbers: Tensor) -> None:
        """One update, in the order of torch's own for-loop."""
        *state, numbers = state_and_numbers
        mean, square = state[0], state[1]
        gradient = -gradient if self.maximize else gradient
        if self.decay and self.decoupled:
            parameter.mul_(numbers[0])
        elif self.decay:
            gradient = gradient + parameter * numbers[0]
        mean.lerp_(gradient, numbers[1])
        square.mul_(numbers[2]).add_(gradient * gradient * numbers[3])
        if self.amsgrad:
            torch.maximum(state[2], square, out=state[2])
            square = state[2]
        parameter.add_(mean / (square.sqrt() / numbers[5] + numbers[6]) * numbers[4])


class SGDForm(NamedTuple):
    """What is fixed for a group of SGD."""

    momentum: bool
    nesterov: bool
    decay: bool
    maximize: bool

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> SGDForm:
        """Of one parameter group."""
        return cls(group["momentum"] != 0, group["nesterov"], group["weight_decay"] != 0, group["maximize"])

    def numbers(self, group: Mapping[str, Any], step: float) -> list[float]:
        """What this step computes with; the number of the update means nothing here."""
        lr, momentum, damped = float(group["lr"]), float(group["momentum"]), 1 - float(group["dampening"])
        return [-lr, momentum, damped, float(group["weight_decay"])]

    def update(self, parameter: Tensor, gradient: Tensor, *state_and_numbers: Tensor) -> None:
        """One update, in the order of torch's own for-loop; the momentum is there already."""
        *state, numbers = state_and_numbers
        gradient = -gradient if self.maximize else gradient
        if self.decay:
            gradient = gradient + parameter * numbers[3]
        if self.momentum:
            state[0].mul_(numbers[1]).add_(gradient * numbers[2])
            gradient = gradient + state[0] * numbers[1] if self.nesterov else state[0]
        parameter.add_(gradient * numbers[0])
