"""The look at a training takes its steps apart, and each of them is a whole one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from compilot import Training
from compilot.diagnose.model.training import LOOKS, inspect_training
from compilot.records import Reference

BATCH = torch.randn(4, 3)


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def test_an_update_that_is_timed_is_one() -> None:
    taken = []

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            taken.append(all(p.grad is not None for group in self.param_groups for p in group["params"]))
            return super().step(closure)

    load = Training(nn.Linear(3, 2), loss, lambda parameters: Counting(parameters, lr=0.1), [BATCH], accumulate=2)
    taken.clear()
    facts = inspect_training(load, Reference(kind="float64", cases=())).step
    assert facts is not None
    assert facts.update_s > 0
    assert taken == [True] * (1 + LOOKS + LOOKS)  # one before the clock, whole steps, and those in parts
