"""A size in the middle of a model, which only a graph break makes torch.compile check."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, least):
        y = x[x > least]  # expect: graph-break dynamic-output-shape  # expect: recompile shape
        return y.cos().sum()


class Fixed(nn.Module):
    def forward(self, x, least):
        y = torch.where(x > least, x, 0)
        return torch.where(x > least, y.cos(), 0).sum()


# advice: remove the graph breaks first
def broken():
    least = [torch.tensor(value) for value in (0.0, 0.5)]
    return Workload(Net(), examples=[(torch.randn(4, 8), one) for one in least])


def fixed():
    least = [torch.tensor(value) for value in (0.0, 0.5)]
    return Workload(Fixed(), examples=[(torch.randn(4, 8), one) for one in least])
