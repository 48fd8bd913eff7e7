"""A while loop on the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        while x.abs().sum() < 100:  # expect: graph-break data-dependent-branch
            x = x * 2
        return x


class Fixed(nn.Module):
    def forward(self, x):
        (x,) = torch.while_loop(lambda x: x.abs().sum() < 100, lambda x: (x * 2,), (x,))
        return x


# advice: torch.while_loop, its condition being `x.abs().sum() < 100`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
