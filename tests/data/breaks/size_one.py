"""A dimension that is marked dynamic and sometimes has size 1, which always gets code of its own."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, tokens):  # expect: recompile shape
        return tokens.sin().cos()


# advice: torch._dynamo.decorators.mark_unbacked(tokens, 1)
# edit: in the calling program
def broken():
    tokens = torch.randn(4, 16)
    torch._dynamo.mark_dynamic(tokens, 1)
    return Workload(Net(), (tokens,), dynamic={"tokens": {1: (1, 64)}})


def fixed():
    tokens = torch.randn(4, 16)
    torch._dynamo.decorators.mark_unbacked(tokens, 1)
    return Workload(Net(), (tokens,), dynamic={"tokens": {1: (1, 64)}})
