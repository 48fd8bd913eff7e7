"""An error that is raised by the value of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        if torch.isnan(y).any():  # expect: graph-break data-dependent-branch
            raise ValueError("not a number")
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        torch._assert_async(torch.logical_not(torch.isnan(y).any()))
        return y.cos()


class FixedOutside(nn.Module):
    """The calling program looks at the second answer."""

    def forward(self, x):
        y = x.sin()
        return y.cos(), torch.isnan(y).any()


# advice: torch._assert_async(torch.logical_not(torch.isnan(y).any()))
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)


def fixed_outside():
    return FixedOutside(), (torch.randn(4, 8),)
