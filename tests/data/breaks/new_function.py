"""A function that is made anew for each call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, activation):
        return activation(x).cos()  # expect: recompile object-identity


def _sine(x):
    return x.sin()


# advice: pass the same activation in every call instead of a new one
# edit: in the calling program
def broken():
    def drive(call):
        for _ in range(2):
            call(torch.randn(4, 8), lambda x: x.sin())

    return Workload(Net(), (torch.randn(4, 8), _sine), drive=drive)


def fixed():
    def drive(call):
        for _ in range(2):
            call(torch.randn(4, 8), _sine)

    return Workload(Net(), (torch.randn(4, 8), _sine), drive=drive)
