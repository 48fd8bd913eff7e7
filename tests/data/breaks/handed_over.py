"""A number from a tensor that another function decides by."""

from __future__ import annotations

import torch
from torch import nn


def _scaled(y, scale):
    return y * scale if scale > 0 else y


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        return _scaled(y, y.max().item())  # expect: graph-break scalar-read


# advice: no edit is known from this line alone: it depends on what `_scaled` does
def broken():
    return Net(), (torch.randn(4, 8),)
