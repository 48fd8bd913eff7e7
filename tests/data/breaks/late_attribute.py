"""An attribute that the model gets after the first call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):
        return x.sin() * getattr(self, "scale", 1)  # expect: recompile attribute


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.tensor(1)

    def forward(self, x):
        return x.sin() * self.scale


def _workload(model, scale):
    def drive(call):
        call(torch.randn(4, 8))
        model.scale = scale
        call(torch.randn(4, 8))

    return Workload(model, (torch.randn(4, 8),), drive=drive)


# advice: set self.scale in __init__, as a tensor
def broken():
    return _workload(Net(), 2)


def fixed():
    return _workload(Fixed(), torch.tensor(2))
