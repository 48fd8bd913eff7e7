"""One tensor for two arguments in some calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, y):  # expect: recompile object-identity
        return x.sin() + y


# advice: pass a tensor of its own for each argument: y.clone()
# edit: in the calling program
def broken():
    x = torch.randn(4, 8)
    return Workload(Net(), examples=[(x, torch.randn(4, 8)), (x, x)])


def fixed():
    x = torch.randn(4, 8)
    return Workload(Net(), examples=[(x, torch.randn(4, 8)), (x, x.clone())])
