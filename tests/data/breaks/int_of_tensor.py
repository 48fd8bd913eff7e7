"""int() of a tensor, used as a slice bound."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, length):
        end = int(length)  # expect: graph-break scalar-read
        return x[:, :end].sum(1) * 2


class Fixed(nn.Module):
    def forward(self, x, length):
        inside = torch.arange(x.shape[1]) < length
        return (x * inside).sum(1) * 2


# advice: compare torch.arange(...) with it and mask
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor(5))


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.tensor(5))


def fixed_by_setting():
    torch._dynamo.config.capture_scalar_outputs = True
    return broken()
