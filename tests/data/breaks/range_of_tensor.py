"""A loop over range() of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, n):
        x = x.sin()
        for _ in range(n):  # expect: graph-break unsupported-builtin
            x = x + 1
        return x


class Fixed(nn.Module):
    def forward(self, x, n):
        x = x.sin()
        for step in range(8):
            x = torch.where(step < n, x + 1, x)
        return x


# advice: x = torch.where(step < n, new, x)
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor(3))


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.tensor(3))


def fixed_with_number():
    return Net(), (torch.randn(4, 8), 3)
