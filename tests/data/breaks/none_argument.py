"""An optional argument that is given in some calls only."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, mask=None):
        y = x.sin()
        return y if mask is None else y * mask  # expect: recompile argument-kind


# advice: always pass mask (an all-ones mask
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), None), (torch.randn(4, 8), torch.ones(4, 8))])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8), torch.ones(4, 8)), (torch.randn(4, 8), torch.ones(4, 8))])
