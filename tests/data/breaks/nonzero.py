"""An operator whose output size depends on values."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        kept = y[y > 0]  # expect: graph-break dynamic-output-shape
        return kept.sum() * 2


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        return torch.where(y > 0, y, 0).sum() * 2


# advice: torch.where(y > 0, y, 0) in place of `y[y > 0]`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_by_setting():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return broken()
