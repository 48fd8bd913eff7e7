"""A tensor's value read into Python with .item()."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        scale = x.abs().max().item()  # expect: graph-break scalar-read
        return x.relu() / scale


class Fixed(nn.Module):
    def forward(self, x):
        scale = x.abs().max()
        return x.relu() / scale


# advice: keep the tensor: `scale = x.abs().max()`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_by_setting():
    torch._dynamo.config.capture_scalar_outputs = True
    return broken()
