"""A text that is made at a graph break, with a new value in every call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, number):
        name = "n" * number.item()  # expect: graph-break scalar-read  # expect: recompile-limit argument-value
        return x.sin() + len(name)


class Fixed(nn.Module):
    def forward(self, x, number):
        return x.sin() + number


def _workload(model):
    def drive(call):
        for number in range(12):
            call(torch.randn(4, 8), torch.tensor(number))

    return Workload(model, (torch.randn(4, 8), torch.tensor(0)), drive=drive)


# advice: first: the value that changes is made there
def broken():
    return _workload(Net())


def fixed():
    return _workload(Fixed())
