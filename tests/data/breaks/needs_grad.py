"""An input that needs gradients in some calls only."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile requires-grad
        return x.sin().cos()


# advice: detach x before the call
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8),), (torch.randn(4, 8, requires_grad=True),)], grad=True)


def fixed():
    return Workload(
        Net(), examples=[(torch.randn(4, 8),), (torch.randn(4, 8, requires_grad=True).detach(),)], grad=True
    )
