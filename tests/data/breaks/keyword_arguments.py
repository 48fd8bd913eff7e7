"""Keyword arguments that only some calls have."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, **kwargs):  # expect: recompile container-length
        return x.sin() + sum(kwargs.values())


# advice: pass the same keyword arguments in every call
# edit: in the calling program
def broken():
    def drive(call):
        call(torch.randn(4, 8))
        call(torch.randn(4, 8), bias=torch.ones(8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    def drive(call):
        call(torch.randn(4, 8), bias=torch.zeros(8))
        call(torch.randn(4, 8), bias=torch.ones(8))

    return Workload(Net(), (torch.randn(4, 8),), {"bias": torch.zeros(8)}, drive=drive)
