"""The layers of the sample model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A layer with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + x
