"""A cache that grows with every call."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, cache):  # expect: recompile shape
        return (x + cache.sum(0)).sin()


# advice: use a cache of fixed size
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(8), torch.ones(length, 8)) for length in (2, 3, 4)])


def fixed():
    caches = [torch.cat([torch.ones(length, 8), torch.zeros(4 - length, 8)]) for length in (2, 3, 4)]
    return Workload(Net(), examples=[(torch.randn(8), cache) for cache in caches])
