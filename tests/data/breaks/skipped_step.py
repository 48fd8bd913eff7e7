"""A step of a loop that is skipped by the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        for scale in (1, 2, 3):
            y = (x * scale).sin()
            if y.sum() > 0:  # expect: graph-break data-dependent-branch
                continue
            x = y
        return x


class Fixed(nn.Module):
    def forward(self, x):
        for scale in (1, 2, 3):
            y = (x * scale).sin()
            x = torch.where(y.sum() > 0, x, y)
        return x


# advice: x = torch.where(y.sum() > 0, x, new)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
