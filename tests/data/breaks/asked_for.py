"""A graph break that the code asks for."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        torch._dynamo.graph_break()  # expect: graph-break explicit
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        return x.sin().cos()


# advice: remove torch.compiler.disable or graph_break here
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
