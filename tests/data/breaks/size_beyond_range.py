"""A dynamic size beyond those that the code was made for."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile shape
        return x.sin() if x.shape[0] % 2 == 0 else x.cos()


def _workload(size):
    x = torch.randn(4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    return Workload(Net(), examples=[(x,), (torch.randn(size, 8),)])


# advice: pad or split x so that its size stays within what the code was made for
# edit: in the calling program
def broken():
    return _workload(7)


def fixed():
    return _workload(8)
