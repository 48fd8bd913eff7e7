"""An operator that cannot be traced: a tensor resized in place."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        y.resize_(8, 4)  # expect: graph-break unsupported-operator
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin().reshape(8, 4)
        return y.cos()


# advice: make a tensor of the new shape with reshape()
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
