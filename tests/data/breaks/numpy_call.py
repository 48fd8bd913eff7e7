"""A numpy function that torch has no counterpart of."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        z = np.unwrap(y.numpy())  # expect: graph-break numpy
        return torch.from_numpy(z).cos()


# advice: write it with torch functions
def broken():
    return Net(), (torch.randn(4, 8),)


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        steps = torch.diff(y)
        turns = torch.remainder(steps + torch.pi, 2 * torch.pi) - torch.pi - steps
        turns = torch.where(steps.abs() < torch.pi, 0, turns)
        return torch.cat([y[:, :1], y[:, 1:] + turns.cumsum(1)], 1).cos()


@torch.library.custom_op("compilot_tests::unwrap", mutates_args=())
def unwrap(y: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.unwrap(y.numpy()))


@unwrap.register_fake
def _(y):
    return torch.empty_like(y)


class FixedWithOperator(nn.Module):
    def forward(self, x):
        return unwrap(x.sin()).cos()


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_with_operator():
    return FixedWithOperator(), (torch.randn(4, 8),)
