"""Two tests on tensors, joined by Python's `and`."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        both = (y.sum() > 0) and (y.max() < 9)  # expect: graph-break data-dependent-branch
        return y * both


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        both = torch.logical_and(y.sum() > 0, y.max() < 9)
        return y * torch.where(both, 1, 0)


# advice: write the test with torch (torch.logical_and
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
