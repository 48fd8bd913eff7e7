"""The process environment changed in forward."""

from __future__ import annotations

import os

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        os.environ["SEEN"] = "1"  # expect: graph-break side-effect
        return y.cos()


# advice: do it before or after the model's call
def broken():
    return Net(), (torch.randn(4, 8),)


class Fixed(nn.Module):
    """The calling program sets it before the call."""

    def forward(self, x):
        return x.sin().cos()


def fixed():
    os.environ["SEEN"] = "1"
    return Fixed(), (torch.randn(4, 8),)
