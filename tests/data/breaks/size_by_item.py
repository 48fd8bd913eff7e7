"""A tensor whose size is read from another."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, n):
        return torch.zeros(n.item()) + x.sum()  # expect: graph-break scalar-read


class Fixed(nn.Module):
    def forward(self, x, n):
        return torch.zeros(n) + x.sum()


# advice: pass `n` to forward as a Python number
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor(3))


def fixed():
    return Fixed(), (torch.randn(4, 8), 3)


def fixed_by_setting():
    torch._dynamo.config.capture_scalar_outputs = True
    return Net(), (torch.randn(4, 8), torch.tensor(3))
