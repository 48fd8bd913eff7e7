"""Calls with gradients between calls without."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile grad-mode
        return x.sin().cos()


# advice: make all calls in the same grad mode
# edit: in the calling program
def broken():
    def drive(call):
        call(torch.randn(4, 8))
        with torch.enable_grad():
            call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    """The calls that had no gradients have them, too; those that need them still do."""

    def drive(call):
        with torch.enable_grad():
            call(torch.randn(4, 8))
            call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive, grad=True)
