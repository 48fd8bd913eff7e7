"""A branch on data inside a loop: the whole function falls back to eager."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = x.sin()
            if x.sum() > 100:  # expect: graph-break data-dependent-branch
                break
        return x


class Fixed(nn.Module):
    def forward(self, x):
        done = torch.zeros((), dtype=torch.bool)
        for _ in range(3):
            x = torch.where(done, x, x.sin())
            done = done | (x.sum() > 100)
        return x


# advice: x = torch.where(done, x, new), then done = done | (x.sum() > 100)
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
