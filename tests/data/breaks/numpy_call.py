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
