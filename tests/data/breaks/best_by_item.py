"""The best of some tensors, by a number that .item() reads."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        outs = [x.sin(), x.cos(), x.tanh()]
        best = max(outs, key=lambda t: t.sum().item())  # expect: graph-break scalar-read
        return best + 1


class Fixed(nn.Module):
    def forward(self, x):
        outs = [x.sin(), x.cos(), x.tanh()]
        best = torch.stack([t.sum() for t in outs]).argmax()
        return torch.stack(outs).index_select(0, best.view(1))[0] + 1


# advice: torch.stack(outs).index_select(0, best.view(1))[0]
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
