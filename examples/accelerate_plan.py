"""A plan of a training in a loop with accelerate: one line. Run: python examples/accelerate_plan.py PLAN"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

from compilot.training.accelerating import apply_prepared


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def make_data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(4, 8, generator=generator), torch.randint(0, 3, (4,), generator=generator)) for _ in range(5)]


def train(
    plan: Any, *, save_to: str | None = None, go_on_from: str | None = None
) -> tuple[nn.Module, list[float], Any]:
    """plan=None: as without compilot. Folders of accelerate's own checkpoints, of trainings with or without a plan."""
    accelerator = Accelerator(cpu=True)
    model = make_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    if go_on_from is not None:
        accelerator.load_state(go_on_from)
    losses, stats = [], None
    with nullcontext() if plan is None else apply_prepared(accelerator, model, optimizer, plan) as applied:
        for inputs, wanted in make_data():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), wanted)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        stats = None if applied is None else applied.stats()
    if save_to is not None:
        accelerator.save_state(save_to)
    return accelerator.unwrap_model(model), losses, stats


if __name__ == "__main__":
    print(train(sys.argv[1])[2])
