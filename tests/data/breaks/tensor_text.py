"""A builtin that the tracer cannot follow: str() of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        self.last = str(y)  # expect: graph-break unsupported-builtin
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        self.last = y
        return y.cos()


# advice: move the call out of forward
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
