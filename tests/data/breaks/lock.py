"""A context manager that the tracer does not know: a lock."""

from __future__ import annotations

import threading

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x):
        y = x.sin()
        with self.lock:  # expect: graph-break context-manager
            z = y.cos()
        return z + 1


class Fixed(nn.Module):
    def forward(self, x):
        return x.sin().cos() + 1


# advice: put `with self.lock:` around the model's call
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
