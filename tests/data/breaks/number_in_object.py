"""A number in an object that is passed in."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from compilot import Workload


@dataclasses.dataclass
class Options:
    scale: float | torch.Tensor


class Net(nn.Module):
    def forward(self, x, options):
        return x.sin() * options.scale  # expect: recompile attribute


# advice: pass options.scale as a tensor, torch.tensor(3.5)
# edit: in the calling program
def broken():
    return Workload(Net(), examples=[(torch.randn(4, 8), Options(scale)) for scale in (2.5, 3.5)])


def fixed():
    return Workload(Net(), examples=[(torch.randn(4, 8), Options(torch.tensor(scale))) for scale in (2.5, 3.5)])
