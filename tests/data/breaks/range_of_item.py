"""A loop that runs as often as a tensor says."""

from __future__ import annotations

import torch
from torch import nn

MOST = 6


class Net(nn.Module):
    def forward(self, x, n):
        for _ in range(n.item()):  # expect: graph-break scalar-read
            x = x.sin()
        return x


class Fixed(nn.Module):
    def forward(self, x, n):
        for step in range(MOST):
            x = torch.where(step < n, x.sin(), x)
        return x


# advice: x = torch.where(step < n, new, x)
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor(3))


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.tensor(3))
