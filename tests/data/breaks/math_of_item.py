"""A function of Python's math on a number from a tensor."""

from __future__ import annotations

import math

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        return y * math.sqrt(x.abs().sum().item())  # expect: graph-break scalar-read


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        return y * torch.sqrt(x.abs().sum())


# advice: `torch.sqrt(x.abs().sum())`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_by_setting():
    torch._dynamo.config.capture_scalar_outputs = True
    return Net(), (torch.randn(4, 8),)
