"""A small model for the A/A measurement of `compilot.environment`: big enough that a call is no mere dispatch."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 256
LAYERS = 6
BATCH = 32


def factory() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A stack of linear layers and its input."""
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers).eval(), (torch.randn(BATCH, WIDTH),)
