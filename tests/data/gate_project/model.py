"""The sample model and its factory: what `compilot check model.py:net` measures."""

from __future__ import annotations

import torch
from blocks import Block
from torch import Tensor, nn


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(64), Block(64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


def net() -> tuple[nn.Module, tuple[Tensor]]:
    """The model in eval mode, and an example call."""
    return Net().eval(), (torch.randn(8, 64),)
