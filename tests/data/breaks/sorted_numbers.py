"""Numbers read from tensors and sorted by Python."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        sums = sorted([t.sum().item() for t in (x.sin(), x.cos())])  # expect: graph-break scalar-read
        return x * sums[0]


# advice: no edit is known for this line: the number decides an order in Python
def broken():
    return Net(), (torch.randn(4, 8),)
