"""A string argument that selects what is done."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, mode):
        return x.sin() if mode == "sin" else x.cos()  # expect: recompile argument-value


# advice: fix it in __init__ and compile one model per value
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), "sin"), (torch.randn(4, 8), "cos")])


class Fixed(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        return x.sin() if self.mode == "sin" else x.cos()


def fixed():
    return Workload(Fixed("sin"), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])


def fixed_too():
    return Workload(Fixed("cos"), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])
