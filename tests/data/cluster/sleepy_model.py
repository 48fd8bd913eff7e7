"""A model that is slow for certain, on any machine and beside any load: it sleeps."""

from __future__ import annotations

import time

import torch
from torch import nn

EAGER_S = 0.012


class Sleepy(nn.Module):
    """A small layer and a pause, which a trace of it does not have."""

    width = 16
    pause_s = EAGER_S

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.pause_s)
        return torch.relu(self.linear(x))


def model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Sleepy().eval(), (torch.randn(4, 16),)
