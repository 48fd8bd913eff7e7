"""A message with a number from a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.note = ""

    def forward(self, x):
        y = x.sin()
        self.note = f"mean {y.mean().item():.2f}"  # expect: graph-break scalar-read
        return y.cos()


class Fixed(Net):
    def forward(self, x):
        y = x.sin()
        if not torch.compiler.is_compiling():
            self.note = f"mean {y.mean().item():.2f}"
        return y.cos()


# advice: if not torch.compiler.is_compiling(): self.note = f"mean
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
