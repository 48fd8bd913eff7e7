"""Trainings of five seeds, and a torch.compile backend whose backward is off by 1 %.

Nothing is imported for eager's own worker, which has no dynamo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot import Training


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.inner(x).tanh())
        return out


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch_of(seed: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=made), torch.randint(0, 3, (5,), generator=made)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Which scales a factor of all gradients away: the weights hardly show it."""
    return torch.optim.AdamW(parameters, lr=0.01)


def of_seed(seed: int) -> Callable[[], Training]:
    def training() -> Training:
        torch.manual_seed(seed)
        return Training(Net(), loss, adamw, batch_of, seed=100 * seed)

    return training


seed_0, seed_1, seed_2, seed_3, seed_4 = map(of_seed, range(5))

if "torch._dynamo" in sys.modules:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def right(graph: Any, inputs: Any) -> Any:
        return make_boxed_func(graph.forward)

    def off(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> list[Any]:
            return [one * 1.01 if isinstance(one, Tensor) else one for one in graph(*args)]

        return make_boxed_func(run)

    NAME = "faulty_backward"
    if NAME not in torch._dynamo.list_backends(exclude_tags=None):
        torch._dynamo.register_backend(aot_autograd(fw_compiler=right, bw_compiler=off), name=NAME)
