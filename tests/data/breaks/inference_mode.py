"""Tensors that are made in inference mode in some calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile global-state
        return x.sin().cos()


# advice: make all calls in torch.inference_mode() or none of them
# edit: in the calling program
def broken():
    def drive(call):
        call(torch.randn(4, 8))
        with torch.inference_mode():
            call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    def drive(call):
        call(torch.randn(4, 8))
        call(torch.randn(4, 8))

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)
