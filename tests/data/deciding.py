"""Targets for which the right decision is known."""

import torch
from torch import nn


class TwoOps(nn.Module):
    """So little work that a guard costs more than the model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + 1)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x))


class Chain(nn.Module):
    """Many small operations over a sequence of any length: fusing them pays."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.tanh(x * 1.01 + 0.1).sin().cos() - x.mean(dim=-1, keepdim=True)
        return self.linear(x)


def two_ops():
    return TwoOps().eval(), (torch.randn(4),)


def dropping():
    return Dropping().train(), (torch.randn(8, 32),)


def chain():
    torch.manual_seed(0)
    return Chain().eval(), (torch.randn(2, 64, 64),)
