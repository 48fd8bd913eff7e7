"""Calls with gradients between calls without."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile grad-mode
        return x.sin().cos()


def broken():
    def drive(call):
        call(torch.randn(4, 8))
        with torch.enable_grad():
            call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    def drive(call):
        call(torch.randn(4, 8))
        call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)
