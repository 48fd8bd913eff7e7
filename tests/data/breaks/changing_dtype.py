"""Inputs of two dtypes."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile dtype
        return x.sin().cos()


# advice: convert x to one dtype before the call: x.to(torch.float32)
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(4, 8, dtype=torch.float64),)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(4, 8, dtype=torch.float64).to(torch.float32),)])
