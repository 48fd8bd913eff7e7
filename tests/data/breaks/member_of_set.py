"""A set that does not always have the same members."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, options):
        return x.sin() if "sin" in options else x.cos()  # expect: recompile argument-value


class Fixed(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return x.sin() if "sin" in self.options else x.cos()


# advice: keep options the same for one compiled model
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), {"sin"}), (torch.randn(4, 8), {"cos"})])


def fixed():
    return Workload(Fixed({"sin"}), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])


def fixed_too():
    return Workload(Fixed({"cos"}), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])
