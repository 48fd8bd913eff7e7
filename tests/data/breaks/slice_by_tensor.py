"""A slice that ends where a tensor says, without .item()."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, n):
        y = x.sin()
        return y[:, :n].sum()  # expect: graph-break scalar-read


# advice: set torch._dynamo.config.capture_scalar_outputs = True, if the number decides no branch
def broken():
    return Net(), (torch.randn(4, 8), torch.tensor(3))


def fixed():
    torch._dynamo.config.capture_scalar_outputs = True
    return Net(), (torch.randn(4, 8), torch.tensor(3))
