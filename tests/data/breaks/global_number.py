"""A global number that another part of the program changes."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload

SCALE = 1


class Net(nn.Module):
    def forward(self, x):
        return x.sin() * SCALE  # expect: recompile global-value


class Fixed(nn.Module):
    def forward(self, x, scale):
        return x.sin() * scale


def _drive(call):
    global SCALE
    for SCALE in (1, 2, 3):  # noqa: B007
        call(torch.randn(4, 8))
    SCALE = 1


def _fixed_drive(call):
    for scale in (1, 2, 3):
        call(torch.randn(4, 8), torch.tensor(scale))


# advice: pass SCALE to forward as a tensor argument
def broken():
    return Workload(Net(), (torch.randn(4, 8),), drive=_drive)


def fixed():
    return Workload(Fixed(), (torch.randn(4, 8), torch.tensor(1)), drive=_fixed_drive)
