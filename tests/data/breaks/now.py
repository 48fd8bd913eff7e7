"""The date in forward."""

from __future__ import annotations

import datetime

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        now = datetime.datetime.now()  # expect: graph-break unsupported-python
        return y.cos() + (now.year > 2000)


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.now = datetime.datetime.now()

    def forward(self, x):
        y = x.sin()
        return y.cos() + (self.now.year > 2000)


# advice: move it to __init__
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
