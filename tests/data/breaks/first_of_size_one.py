"""A first call of size 1."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile shape
        return x.sin().cos()


# advice: pad x to 2; or make the first call with size 2 or more
# edit: in the calling program
# answers: of another size
def broken():
    return Workload(Net(), examples=[(torch.randn(1, 8),), (torch.randn(4, 8),)])


def fixed():
    x = torch.randn(1, 8)
    padded = torch.cat([x, torch.zeros(1, 8)])
    torch._dynamo.mark_dynamic(padded, 0)
    return Workload(Net(), examples=[(padded,), (torch.randn(4, 8),)])


def fixed_first():
    return Workload(Net(), (torch.randn(4, 8),))
