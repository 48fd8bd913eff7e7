"""The number of threads changed between calls."""

from __future__ import annotations

import torch
from torch import nn

from compilot import Workload


class Net(nn.Module):
    def forward(self, x):  # expect: recompile threads
        return x.sin().cos()


# advice: set the number of threads once, before the first call
# edit: in the calling program
def broken():
    before = torch.get_num_threads()

    def drive(call):
        call(torch.randn(4, 8))
        torch.set_num_threads(before + 1)
        call(torch.randn(4, 8))
        torch.set_num_threads(before)

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)


def fixed():
    """The same number of threads in the end, from the first call on."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)

    def drive(call):
        call(torch.randn(4, 8))
        call(torch.randn(4, 8))
        torch.set_num_threads(before)

    return Workload(Net(), (torch.randn(4, 8),), drive=drive)
