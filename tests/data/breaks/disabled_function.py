"""A function that torch.compile was told to leave alone."""

from __future__ import annotations

import torch
from torch import nn


@torch.compiler.disable
def postprocess(y):
    return y.cos()


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        return postprocess(y) + 1  # expect: graph-break explicit


class Fixed(nn.Module):
    def forward(self, x):
        return x.sin().cos() + 1


# advice: remove torch.compiler.disable
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
