"""A number that is sometimes nan."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, scale):
        return x.sin() * scale  # expect: recompile argument-value


# advice: pass scale as a tensor
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), scale) for scale in (float("nan"), 3.5)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8), torch.tensor(scale)) for scale in (float("nan"), 3.5)])
