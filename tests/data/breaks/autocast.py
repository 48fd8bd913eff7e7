"""Calls under autocast between calls without."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile global-state
        return x.sin().cos()


# advice: set it once, before the first call
# edit: in the calling program
def broken():
    def drive(call):
        call(torch.randn(4, 8))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    """No call under autocast, as at the first call."""

    def drive(call):
        call(torch.randn(4, 8))
        call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)
