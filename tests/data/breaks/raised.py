"""An exception raised and caught around tensor code."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        try:
            y = y.view(3, 7)  # expect: compile-failure exception
        except RuntimeError:
            y = y.cos()
        return y + 1


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        y = y.view(3, 7) if y.numel() == 21 else y.cos()
        return y + 1


# advice: test the condition first (shapes and types are known while tracing)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
