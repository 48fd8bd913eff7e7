"""A Python if on a number that .item() reads: without the read it would still be an if on data."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        if x.max().item() > 5:  # expect: graph-break scalar-read
            return x * 2
        return x - 1


class Fixed(nn.Module):
    def forward(self, x):
        return torch.where(x.max() > 5, x * 2, x - 1)


# advice: torch.where(x.max() > 5, then, otherwise)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
