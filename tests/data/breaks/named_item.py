"""A number that .item() reads, under a name; a test a few lines below needs it."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        largest = x.max().item()  # expect: graph-break scalar-read
        y = x.sin()
        return y * 2 if largest > 5 else y


class Fixed(nn.Module):
    def forward(self, x):
        largest = x.max()
        y = x.sin()
        return torch.where(largest > 5, y * 2, y)


# advice: keep `x.max()` a tensor; where it decides, compute both sides and choose with torch.where
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
