"""Models whose eager call some of the drawn inputs end by a signal: nothing is wrong with the model."""

from __future__ import annotations

import torch
from torch import nn


class Negated(nn.Module):
    """The least 64-bit integer divided by -1 is a SIGFPE in torch."""

    def forward(self, counts: torch.Tensor) -> torch.Tensor:
        return torch.div(counts, -1, rounding_mode="trunc").float()


def negated() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Negated().eval(), (torch.randint(-50, 50, (512,)),)
