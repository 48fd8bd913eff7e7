"""A custom autograd function with a rule for forward-mode gradients."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class DoubleBothWays(Double):
    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        return DoubleBothWays.apply(y).sin()  # expect: graph-break autograd


class Fixed(Net):
    def forward(self, x):
        return Double.apply(self.linear(x)).sin()


# advice: write the custom gradient with forward and backward only
def broken():
    return Workload(Net(), (torch.randn(4, 8),), grad=True)


def fixed():
    return Workload(Fixed(), (torch.randn(4, 8),), grad=True)
