"""A batch size that changes between calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile shape
        return x.sin().cos()


# advice: call torch._dynamo.mark_dynamic(x, 0) before the first call
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(6, 8),)])


def fixed():
    x = torch.randn(4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    return Workload(Net(), examples=[(x,), (torch.randn(6, 8),)])


def fixed_by_padding():
    padded = torch.cat([torch.randn(4, 8), torch.zeros(2, 8)])
    return Workload(Net(), examples=[(padded,), (torch.randn(6, 8),)])
