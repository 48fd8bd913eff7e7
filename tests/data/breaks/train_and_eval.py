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


def _workload(model, modes):
    def drive(call):
        for training in modes:
            model.train(training)
            call(torch.randn(4, 8))
        model.train(modes[0])

    return Workload(model.train(modes[0]), (torch.randn(4, 8),), drive=drive)


# advice: compile one for each
# edit: in the calling program
def broken():
    return _workload(Net(), (False, True))


def fixed():
    return _workload(Net(), (False, False))


def fixed_too():
    return _workload(Net(), (True, True))
