"""What the tests of the correctness gate share: a stand-in for a workload, cases and a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compilot._tree import Call
from compilot.measure.correctness import check, make_reference
from compilot.records import Check
from compilot.workload.unit import Inference, Unit
from compilot.workload.variations import Case


class Job(NamedTuple):
    """Stands in for a workload."""

    model: nn.Module
    seed: int = 0
    grad: bool = False
    examples: tuple[Call, ...] = ()

    def unit(self, fn: Callable[..., Any]) -> Unit:
        return Inference(fn, self)


class Function(nn.Module):
    """A model without weights, from a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def on(*inputs: Tensor) -> list[Case]:
    return [Case(f"seed {i}", Call((x,), {})) for i, x in enumerate(inputs)]


THREE = on(numbers(4, 8), numbers(4, 8, seed=1), torch.zeros(4, 8))


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 10)).to(dtype).eval()


Judge = Callable[..., Check]


def judge_in(folder: Path) -> Judge:
    """judge(model, candidate, cases=..., grad=..., seed=...) -> Check, with its reference in `folder`."""

    def run(model: nn.Module, fn: Callable[..., Any], cases: list[Case] = THREE, **options: Any) -> Check:
        job = Job(model, **options)
        return check(fn, job, cases, folder, make_reference(job, cases, folder))

    return run
