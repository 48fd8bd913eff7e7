"""A backward hook on a submodule: the break is inside torch, the line to look at is the call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def __init__(self, hooked):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        if hooked:
            self.linear.register_full_backward_hook(lambda module, before, after: None)

    def forward(self, x):
        return self.linear(x).sin()  # expect: graph-break hook


# advice: take the hook away when not debugging
def broken():
    return Workload(Net(hooked=True), (torch.randn(4, 8),), grad=True)


def fixed():
    return Workload(Net(hooked=False), (torch.randn(4, 8),), grad=True)
