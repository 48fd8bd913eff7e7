"""The elements of a tensor that a mask lets through."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return torch.masked_select(x, x > 0).sum()  # expect: graph-break dynamic-output-shape


class Fixed(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, 0).sum()


# advice: torch.where(x > 0, x, 0) in place of `torch.masked_select(x, x > 0)`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_by_setting():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return Net(), (torch.randn(4, 8),)
