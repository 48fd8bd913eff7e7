"""The clock read in forward."""

from __future__ import annotations

import time

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        self.begin = time.perf_counter()  # expect: graph-break unsupported-builtin
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        return x.sin().cos()


# advice: move the call out of forward
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
