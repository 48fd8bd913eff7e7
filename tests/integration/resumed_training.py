"""A training that saves after every update and goes on from there: run by test_training_restarts.py, and killed.

In: plan file, checkpoint file, file of losses, number of updates, the update after which it kills itself (0: never).
Out: one line per update (its number and loss, exactly); at the end, what was built, on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import compilot


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(F.dropout(self.norm(self.inner(x)).relu(), 0.2, self.training))
        return out


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(6, 8, generator=generator), torch.randint(0, 3, (6,), generator=generator)


def start() -> nn.Module:
    torch.manual_seed(3)
    return Net()


def save(path: Path, *parts: object) -> None:
    torch.save(parts, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main(plan: str, checkpoint: str, losses: str, updates: int, killed_after: int) -> None:
    model, path = start(), Path(checkpoint)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=updates + 1)
    step, first = compilot.train_step(model, loss_of, optimizer, plan), 0
    if path.exists():
        first, weights, moments, schedule, numbers = torch.load(path)
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        scheduler.load_state_dict(schedule)
        torch.set_rng_state(numbers)
    for update in range(first, updates):
        with Path(losses).open("a") as file:
            total = sum(step(batch_of(update * 2 + half)).item() for half in range(2))
            file.write(f"{update} {total!r}\n")
        scheduler.step()
        save(
            path, update + 1, model.state_dict(), optimizer.state_dict(), scheduler.state_dict(), torch.get_rng_state()
        )
        if update + 1 == killed_after:
            step(batch_of(0))  # in the middle of a window
            os.kill(os.getpid(), signal.SIGKILL)
    from torch._dynamo.utils import counters

    stats = step.stats()
    told = {"compiles": stats.compiles, "recompiles": stats.recompiles, "fallbacks": stats.fallbacks}
    print(json.dumps({**told, "misses": counters["inductor"]["fxgraph_cache_miss"]}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
