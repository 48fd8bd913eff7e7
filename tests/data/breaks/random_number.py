"""Python's own random numbers drawn in forward."""

from __future__ import annotations

import random

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        lucky = random.gauss(0, 1) > 0  # expect: graph-break unsupported-builtin
        return y.cos() if lucky else y


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        return torch.where(torch.randn(()) > 0, y.cos(), y)


# advice: draw it with torch (torch.rand, torch.randn)
# answers: random
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
