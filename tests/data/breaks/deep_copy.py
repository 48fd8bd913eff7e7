"""A tensor copied with copy.deepcopy."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        kept = copy.deepcopy(y)  # expect: graph-break unsupported-python
        return y.cos() + kept


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        kept = y.clone()
        return y.cos() + kept


# advice: write tensor.clone() instead of copy.deepcopy(tensor)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
