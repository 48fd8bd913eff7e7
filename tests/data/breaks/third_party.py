"""A function of a C extension from another package."""

from __future__ import annotations

import msgspec
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        size = len(msgspec.json.encode([1, 2, 3]))  # expect: graph-break third-party-call
        return y.cos() + size


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = len(msgspec.json.encode([1, 2, 3]))

    def forward(self, x):
        return x.sin().cos() + self.size


# advice: compute it once in __init__
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


@torch.library.custom_op("compilot_tests::size_of_text", mutates_args=())
def size_of_text(y: torch.Tensor) -> torch.Tensor:
    return torch.tensor(len(msgspec.json.encode([1, 2, 3])))


@size_of_text.register_fake
def _(y):
    return torch.empty((), dtype=torch.int64)


class FixedWithOperator(nn.Module):
    def forward(self, x):
        y = x.sin()
        return y.cos() + size_of_text(y)


def fixed_with_operator():
    return FixedWithOperator(), (torch.randn(4, 8),)
