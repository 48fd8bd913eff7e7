"""The number of threads changed between calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile threads
        return x.sin().cos()


def _workload(change):
    def drive(call):
        before = torch.get_num_threads()
        call(torch.randn(4, 8))
        torch.set_num_threads(before + change)
        call(torch.randn(4, 8))
        torch.set_num_threads(before)

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def broken():
    return _workload(1)


def fixed():
    return _workload(0)
