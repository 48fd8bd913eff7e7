"""A transposed input after a contiguous one."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile stride
        return x.sin().cos()


# advice: call .contiguous() on x before the model
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(8, 8),), (torch.randn(8, 8).t(),)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(8, 8),), (torch.randn(8, 8).t().contiguous(),)])
