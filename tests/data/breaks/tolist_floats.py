"""A tensor of floats turned into a list."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        parts = x.mean(1).tolist()  # expect: graph-break scalar-read
        return x.relu() + parts[0]


class Fixed(nn.Module):
    def forward(self, x):
        parts = x.mean(1)
        return x.relu() + parts[0]


# advice: keep the tensor: `parts = x.mean(1)`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
