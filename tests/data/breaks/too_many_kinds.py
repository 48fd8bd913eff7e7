"""So many values of one argument that torch.compile gives up: silently eager from then on."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x, name):
        return x.sin() + len(name)  # expect: recompile-limit argument-value


# advice: do what depends on it before the call and pass the result as a tensor
def broken():
    def drive(call):
        for number in range(12):
            call(torch.randn(4, 8), "n" * number)

    return Workload(Net(), (torch.randn(4, 8), ""), drive=drive)


class Fixed(nn.Module):
    def forward(self, x, length):
        return x.sin() + length


def fixed():
    def drive(call):
        for number in range(12):
            call(torch.randn(4, 8), torch.tensor(number))

    return Workload(Fixed(), (torch.randn(4, 8), torch.tensor(0)), drive=drive)
