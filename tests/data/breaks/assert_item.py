"""An assertion on a number that .item() reads."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        assert y.min().item() > -100  # expect: graph-break scalar-read
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        torch._assert_async(y.min() > -100)
        return y.cos()


# advice: torch._assert_async(y.min() > -100)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
