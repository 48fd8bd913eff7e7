"""A number captured by a closure that changes."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


def make_scaling(start):
    scale = start

    def apply(x):
        return x.sin() * scale  # expect: recompile closure-value

    def change(value):
        nonlocal scale
        scale = value

    return apply, change


class Net(nn.Module):
    def __init__(self, apply):
        super().__init__()
        self.apply_scale = apply

    def forward(self, x):
        return self.apply_scale(x) + 1


def _workload(start, values):
    apply, change = make_scaling(start)

    def drive(call):
        for value in values:
            change(value)
            call(torch.randn(4, 8))
        change(start)

    return Workload(Net(apply), (torch.randn(4, 8),), drive=drive)


# advice: capture a tensor
def broken():
    return _workload(1, (1, 2))


def fixed():
    return _workload(torch.tensor(1), (torch.tensor(1), torch.tensor(2)))
