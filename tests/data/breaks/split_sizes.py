"""Sizes of parts that are read from a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, lengths):
        sizes = lengths.tolist()  # expect: graph-break scalar-read
        return x.split(sizes)[0].sum()


class Fixed(nn.Module):
    def forward(self, x, sizes):
        return x.split(sizes)[0].sum()


# advice: pass `lengths` to forward as a list of Python numbers
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor([1, 3]))


def fixed():
    return Fixed(), (torch.randn(4, 8), [1, 3])


def fixed_by_setting():
    torch._dynamo.config.capture_scalar_outputs = True
    return Net(), (torch.randn(4, 8), torch.tensor([1, 3]))
