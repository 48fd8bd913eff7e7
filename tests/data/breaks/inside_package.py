"""A call into another package's Python code, which the tracer enters and cannot leave."""

from __future__ import annotations

import psutil
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x.sin() * psutil.cpu_count()  # expect: graph-break unsupported-builtin


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.cores = psutil.cpu_count()

    def forward(self, x):
        return x.sin() * self.cores


# advice: the code is psutil's: call it outside of the compiled part
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
