"""A tensor with one dimension more in some calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile shape
        return x.sin().cos()


# advice: give x always the same number of dimensions
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(1, 4, 8),)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(1, 4, 8).flatten(0, 1),)])
