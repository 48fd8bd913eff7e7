"""A submodule that is added after the first call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x):  # expect: recompile container-length
        for layer in self.layers:
            x = layer(x)
        return x


# advice: do not change self.layers after the first call
# edit: in the calling program
def broken():
    model = Net(1)

    def drive(call):
        call(torch.randn(4, 8))
        model.layers.append(nn.Linear(8, 8))
        call(torch.randn(4, 8))

    return Workload(model, (torch.randn(4, 8),), drive=drive)


def fixed():
    return Workload(Net(1), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])


def fixed_too():
    return Workload(Net(2), examples=[(torch.randn(4, 8),), (torch.randn(4, 8),)])
