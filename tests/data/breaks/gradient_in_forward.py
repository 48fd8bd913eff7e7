"""A gradient taken within forward."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x):
        energy = self.linear(x.sin()).sum()
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)  # expect: graph-break autograd
        return slope * 2


# advice: set torch._dynamo.config.trace_autograd_ops = True
def broken():
    return Workload(Net(), (torch.randn(4, 8, requires_grad=True),), grad=True)


class Fixed(nn.Module):
    """The calling program takes the gradient of the answer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x):
        return self.linear(x.sin()).sum()


def fixed():
    torch._dynamo.config.trace_autograd_ops = True
    return broken()


def fixed_outside():
    return Workload(Fixed(), (torch.randn(4, 8, requires_grad=True),), grad=True)
