"""A global list that grows at every call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload

SEEN = []


class Net(nn.Module):
    def forward(self, x):
        SEEN.append(1)  # expect: recompile container-length
        return x.sin()


class Fixed(nn.Module):
    def forward(self, x):
        return x.sin()


def _workload(model, outside):
    def drive(call):
        for _ in range(2):
            call(torch.randn(4, 8))
            SEEN.extend(outside)

    return Workload(model, (torch.randn(4, 8),), drive=drive)


# advice: return the value and append it outside
def broken():
    return _workload(Net(), outside=())


def fixed():
    return _workload(Fixed(), outside=(1,))
