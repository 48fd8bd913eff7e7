"""A generator that is advanced by forward."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = (2.0 for _ in range(1000))

    def forward(self, x):
        y = x.sin()
        scale = next(self.scales)  # expect: graph-break generator
        return y.cos() * scale


class Fixed(nn.Module):
    def forward(self, x, scale):
        return x.sin().cos() * scale


# advice: pass the next value as an argument
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.tensor(2.0))


class FixedWithList(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = [2.0 for _ in range(1000)]

    def forward(self, x):
        y = x.sin()
        scale = self.scales[0]
        return y.cos() * scale


def fixed_with_list():
    return FixedWithList(), (torch.randn(4, 8),)
