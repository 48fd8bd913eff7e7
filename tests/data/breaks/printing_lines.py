"""A print over several lines in forward."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        print(  # expect: graph-break print
            "the mean of all elements of this tensor",
            y.mean(),
        )
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        if not torch.compiler.is_compiling():
            print(
                "the mean of all elements of this tensor",
                y.mean(),
            )
        return y.cos()


# advice: delete the statement, or put it under `if not torch.compiler.is_compiling():`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
