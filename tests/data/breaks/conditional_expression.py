"""A conditional expression on the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1  # expect: graph-break data-dependent-branch


class Fixed(nn.Module):
    def forward(self, x):
        return torch.where(x.sum() > 0, x * 2, x - 1)


class FixedWithCond(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


# advice: torch.where(x.sum() > 0, x * 2, x - 1) if both have the same shape
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_with_cond():
    return FixedWithCond(), (torch.randn(4, 8),)
