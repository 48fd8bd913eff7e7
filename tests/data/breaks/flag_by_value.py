"""An attribute that is set by the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = False

    def forward(self, x):
        y = x.sin()
        if y.sum() > 0:  # expect: graph-break data-dependent-branch
            self.seen = True
        return y.cos()


class Fixed(nn.Module):
    """The calling program sets the attribute."""

    def forward(self, x):
        y = x.sin()
        return y.cos(), y.sum() > 0


# advice: return `y.sum() > 0` from forward
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
