"""A small training: a model with statistics and blocks, its loss, batches, and the loop by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot.records import Settings

AOT = Settings(engine="dynamo:aot_eager")  # traced and differentiated as by the compiler, but run by eager
Batch = tuple[Tensor, Tensor]


class Net(nn.Module):
    """With statistics that a step changes, and blocks that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)])
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.out(x)
        return out


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def make_batches(count: int, size: int = 4) -> list[Batch]:
    return [(torch.randn(size, 2, 5, 5), torch.randint(0, 3, (size,))) for _ in range(count)]


def by_hand(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch], *, accumulate: int = 1, clip: Any = None
) -> list[float]:
    """The loop as a user writes it."""
    losses = []
    for number, batch in enumerate(batches):
        if number % accumulate == 0:
            optimizer.zero_grad()
        loss = loss_of(model, batch)
        (loss / accumulate).backward()  # type: ignore[no-untyped-call]
        if (number + 1) % accumulate == 0:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        losses.append(loss.item())
    return losses


def twin(model: nn.Module, lr: float = 0.01) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A copy of the model with an optimizer of its own."""
    other = copy.deepcopy(model)
    return other, torch.optim.AdamW(other.parameters(), lr=lr)


def farthest(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between two models' weights and buffers."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


@contextmanager
def backend_that_fails(name: str, fails: Callable[[str], bool]) -> Iterator[Settings]:
    """Settings of a compiler that fails where it is told to: fails("forward"), fails("backward")."""
    from torch._dynamo.backends import registry
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def compiler(when: str) -> Callable[[Any, Any], Any]:
        def run(graph: Any, inputs: Any) -> Any:
            if fails(when):
                raise RuntimeError("no compiler here")
            return make_boxed_func(graph.forward)

        return run

    backend = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    torch._dynamo.register_backend(backend, name=name)
    try:
        yield Settings(engine=f"dynamo:{name}")
    finally:
        registry._BACKENDS.pop(name)
        registry._COMPILER_FNS.pop(name)
