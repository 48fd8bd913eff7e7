"""A declared dynamic dimension; plain torch.compile compiles again when it changes."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, tokens):  # expect: recompile shape
        return tokens.sin().cos()


# advice: call torch._dynamo.mark_dynamic(tokens, 1) before the first call
# edit: in the calling program
def broken():
    return Workload(Net(), (torch.randn(4, 16),), dynamic={"tokens": {1: (2, 64)}})


def fixed():
    tokens = torch.randn(4, 16)
    torch._dynamo.mark_dynamic(tokens, 1)
    return Workload(Net(), (tokens,), dynamic={"tokens": {1: (2, 64)}})
