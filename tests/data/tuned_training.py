"""A training for which the decision is known, and a fresh process that uses its plan.

A hundred small operators over a few thousand numbers: fused into one program they take a fraction of the time. The
optimizer has no other variants, so that the compiled model is what is left to try.

As a program: in: a run directory. Out: what was compiled and who ran, as JSON.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch
from torch import Tensor, nn

import compilot


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        for _ in range(25):
            x = (x * 0.99 + 0.01).relu() - 0.5 * x.abs()
        return x


class Descent(torch.optim.Optimizer):
    """Plain gradient descent."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.grad)


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def batch_of(seed: int) -> Tensor:
    return torch.randn(64, 16, generator=torch.Generator().manual_seed(seed))


def descent(parameters: Any) -> torch.optim.Optimizer:
    return Descent(parameters, lr=0.01)


def training() -> compilot.Training:
    """The target."""
    return compilot.Training(Chain(), loss, descent, batch_of)


def main(run: str) -> None:
    compilot.apply_process(run)
    model = Chain()
    step = compilot.train_step(model, loss, descent(model.parameters()), run, strict=True)
    losses = [step(batch_of(seed)).item() for seed in range(4)]
    from torch._dynamo.utils import counters

    found, stats = counters["inductor"], step.stats()
    cache = {"hits": found["fxgraph_cache_hit"], "misses": found["fxgraph_cache_miss"]}
    print(
        json.dumps(
            {**cache, "fast": stats.fast, "fallbacks": stats.fallbacks, "finite": all(map(math.isfinite, losses))}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
