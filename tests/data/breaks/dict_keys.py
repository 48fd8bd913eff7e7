"""A dict of inputs whose keys change."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, batch):
        total = batch["a"].sin()
        if "b" in batch:  # expect: recompile container-length
            total = total + batch["b"]
        return total


# advice: give batch the same keys in the same order in every call (zeros for what is missing)
# edit: in the calling program
def broken():
    one = {"a": torch.randn(4, 8)}
    two = {"a": torch.randn(4, 8), "b": torch.randn(4, 8)}
    return Workload(Net(), examples=[(one,), (two,)])


def fixed():
    one = {"a": torch.randn(4, 8), "b": torch.zeros(4, 8)}
    two = {"a": torch.randn(4, 8), "b": torch.randn(4, 8)}
    return Workload(Net(), examples=[(one,), (two,)])
