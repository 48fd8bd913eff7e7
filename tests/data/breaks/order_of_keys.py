"""A dict whose keys come in another order."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, batch):
        total = 0
        for part in batch.values():  # expect: recompile container-length
            total = total + part.sin()
        return total


# advice: give batch the same keys in the same order in every call
# edit: in the calling program
def broken():
    a, b = torch.randn(4, 8), torch.randn(4, 8)
    return Workload(Net(), examples=[({"a": a, "b": b},), ({"b": b, "a": a},)])


def fixed():
    a, b = torch.randn(4, 8), torch.randn(4, 8)
    return Workload(Net(), examples=[({"a": a, "b": b},), ({"a": a, "b": b},)])
