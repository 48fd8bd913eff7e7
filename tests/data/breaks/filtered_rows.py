"""A list of the rows that a test on their values lets through."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        rows = [row for row in x.unbind() if row.sum() > 0]  # expect: graph-break data-dependent-branch
        return sum(rows) + x.sum()


class Fixed(nn.Module):
    def forward(self, x):
        rows = [torch.where(row.sum() > 0, row, 0) for row in x.unbind()]
        return sum(rows) + x.sum()


# advice: keep all items and set those that do not count to zero
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
