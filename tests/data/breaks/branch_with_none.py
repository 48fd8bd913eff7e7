"""An if whose test is partly about a tensor's value."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, mask):
        y = x.sin()
        if mask is not None and mask.sum() > 0:  # expect: graph-break data-dependent-branch
            y = y * mask
        return y


class Fixed(nn.Module):
    def forward(self, x, mask):
        y = x.sin()
        if mask is not None:
            y = torch.where(mask.sum() > 0, y * mask, y)
        return y


# advice: let Python decide what needs no tensor, in an `if` of its own
def broken():
    return Net(), (torch.randn(4, 8), torch.rand(4, 8))


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.rand(4, 8))
