"""A dict changed behind a read-only view of it."""

from __future__ import annotations

import types

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {"a": 1}
        self.view = types.MappingProxyType(self.table)

    def forward(self, x):
        y = x.sin()
        self.table["b"] = 2
        return y.cos() + self.view["b"]  # expect: graph-break side-effect


class Fixed(Net):
    def __init__(self):
        super().__init__()
        self.table["b"] = 2

    def forward(self, x):
        y = x.sin()
        return y.cos() + self.view["b"]


# advice: do it before or after the model's call
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
