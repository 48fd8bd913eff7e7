"""A gradient that is asked for inside forward."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        y.retain_grad()  # expect: graph-break autograd
        return y


class Fixed(Net):
    """The calling program asks for it."""

    def forward(self, x):
        return self.linear(x)


# advice: no edit is known that keeps it in forward
def broken():
    return Workload(Net(), (torch.randn(4, 8),), grad=True)


def fixed():
    return Workload(Fixed(), (torch.randn(4, 8),), grad=True)
