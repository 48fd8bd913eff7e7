"""A Python if on the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        if y.sum() > 0:  # expect: graph-break data-dependent-branch
            return y * 2
        return y - 1


class Fixed(Net):
    def forward(self, x):
        y = self.linear(x)
        return torch.where(y.sum() > 0, y * 2, y - 1)


# advice: torch.where(y.sum() > 0, then, otherwise)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


class FixedWithCond(Net):
    def forward(self, x):
        y = self.linear(x)
        return torch.cond(y.sum() > 0, lambda y: y * 2, lambda y: y - 1, (y,))


def fixed_with_cond():
    return FixedWithCond(), (torch.randn(4, 8),)
