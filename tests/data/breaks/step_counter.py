"""An int attribute that changes at every call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        return x.sin() * self.step  # expect: recompile attribute


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        return x.sin() * self.step


def _workload(model, advance):
    def drive(call):
        for _ in range(3):
            call(torch.randn(4, 8))
            advance(model)

    return Workload(model, (torch.randn(4, 8),), drive=drive)


def _count(model):
    model.step += 1


# advice: make self.step a buffer (self.register_buffer with a tensor)
def broken():
    return _workload(Net(), _count)


def fixed():
    return _workload(Fixed(), _count)
