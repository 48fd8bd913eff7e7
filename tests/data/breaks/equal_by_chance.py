"""Two sizes that are the same in the first calls only."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, y):  # expect: recompile shape  # expect: recompile shape
        return x.sum() * y.sum()


def _examples():
    return [(torch.randn(x), torch.randn(y)) for x, y in ((8, 8), (6, 6), (6, 7))]


# advice: call torch._dynamo.mark_dynamic for both dimensions before the first call
# edit: in the calling program
def broken():
    return Workload(Net(), examples=_examples())


def fixed():
    examples = _examples()
    for one in examples[0]:
        torch._dynamo.mark_dynamic(one, 0)
    return Workload(Net(), examples=examples)
