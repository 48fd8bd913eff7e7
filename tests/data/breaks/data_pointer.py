"""The address of a tensor's data, which stand-ins for tensors do not have."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        return y * (x.data_ptr() != 0)  # expect: graph-break unsupported-python


class Fixed(nn.Module):
    def forward(self, x, filled):
        y = x.sin()
        return y * filled


# advice: no edit is known that keeps it in forward
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    x = torch.randn(4, 8)
    return Fixed(), (x, x.data_ptr() != 0)
