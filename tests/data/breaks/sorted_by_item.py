"""Tensors sorted by a number that .item() reads."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        outs = [x.sin(), x.cos(), x.tanh()]
        outs = sorted(outs, key=lambda t: t.sum().item())  # expect: graph-break scalar-read
        return outs[0] - outs[-1]


class Fixed(nn.Module):
    def forward(self, x):
        outs = [x.sin(), x.cos(), x.tanh()]
        order = torch.stack([t.sum() for t in outs]).argsort()
        outs = torch.stack(outs)[order]
        return outs[0] - outs[-1]


# advice: order = torch.stack([t.sum() for t in outs]).argsort(), then torch.stack(outs)[order]
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
