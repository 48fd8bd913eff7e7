"""An argument that is a tensor in some calls and a number in others."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, scale):  # expect: recompile argument-kind
        return x.sin() * scale


# advice: give scale the same type in every call
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), scale) for scale in (torch.tensor(2.5), 3.5)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8), torch.tensor(scale)) for scale in (2.5, 3.5)])
