"""Small models for bundle tests, as targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.outer = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, extra: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
        hidden = torch.relu(self.inner(x))
        if extra is not None:
            hidden = hidden + extra["bias"]
        return {"logits": self.outer(hidden), "hidden": [hidden], "none": None}


def model() -> Tiny:
    torch.manual_seed(7)
    return Tiny().eval()


def batch(size: int) -> torch.Tensor:
    torch.manual_seed(size)
    return torch.randn(size, 16)


def one() -> tuple[Tiny, tuple[Any, ...], dict[str, Any]]:
    return model(), (batch(1),), {"extra": {"bias": torch.ones(32)}}


def four() -> tuple[Tiny, tuple[Any, ...], dict[str, Any]]:
    return model(), (batch(4),), {"extra": {"bias": torch.ones(32)}}
