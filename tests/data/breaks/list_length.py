"""A list of tensors that grows."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, xs):
        total = xs[0].sin()  # expect: recompile container-length
        for x in xs[1:]:
            total = total + x.sin()
        return total


# advice: stack the items into one tensor
def broken():
    return Workload(Net(), examples=[([torch.randn(4, 8)] * 2,), ([torch.randn(4, 8)] * 3,)])


class Fixed(nn.Module):
    def forward(self, xs):
        return xs.sin().sum(0)


def fixed():
    first = torch.stack([torch.randn(4, 8)] * 2)
    torch._dynamo.mark_dynamic(first, 0)
    return Workload(Fixed(), examples=[(first,), (torch.stack([torch.randn(4, 8)] * 3),)])


def fixed_by_padding():
    zeros = torch.zeros(4, 8)
    examples = [[torch.randn(4, 8), torch.randn(4, 8), zeros], [torch.randn(4, 8) for _ in range(3)]]
    return Workload(Net(), examples=[(xs,) for xs in examples])
