"""A string argument that selects what is done."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, mode):
        return x.sin() if mode == "sin" else x.cos()  # expect: recompile argument-value


def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), "sin"), (torch.randn(4, 8), "cos")])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8), "sin"), (torch.randn(4, 8), "sin")])
