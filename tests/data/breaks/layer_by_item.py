"""A submodule that is chosen by a number from a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        which = (x.abs().sum().long() % 3).item()  # expect: graph-break scalar-read
        return self.layers[which](x)


class Fixed(Net):
    def forward(self, x):
        which = x.abs().sum().long() % 3
        return torch.stack([layer(x) for layer in self.layers]).index_select(0, which.view(1))[0]


# advice: stack all that `self.layers` may give, then torch.stack(...).index_select(0,
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
