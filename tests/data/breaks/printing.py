"""A print in forward."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        print("mean", y.mean())  # expect: graph-break print
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        return y.cos()


# advice: delete the line
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


class FixedInEagerOnly(nn.Module):
    def forward(self, x):
        y = x.sin()
        if not torch.compiler.is_compiling():
            print("mean", y.mean())
        return y.cos()


def fixed_in_eager_only():
    return FixedInEagerOnly(), (torch.randn(4, 8),)
