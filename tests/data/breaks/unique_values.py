"""The different values of a tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return torch.unique(x.round()).sum() + x.sum()  # expect: graph-break dynamic-output-shape


# advice: set torch._dynamo.config.capture_dynamic_output_shape_ops = True
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return Net(), (torch.randn(4, 8),)
