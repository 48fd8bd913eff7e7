"""One model called in train mode and in eval mode."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        return y * 2 if self.training else y  # expect: recompile attribute


def _workload(other):
    model = Net().eval()

    def drive(call):
        call(torch.randn(4, 8))
        model.train(other)
        call(torch.randn(4, 8))
        model.eval()

    return Workload(model, (torch.randn(4, 8),), drive=drive)


def broken():
    return _workload(True)


def fixed():
    return _workload(False)
