"""A model that looks up the columns of one tensor of ids in tables of different sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

SIZES = (10, 300, 3)
IDS = torch.tensor([[9, 299, 2], [0, 150, 1], [4, 7, 0], [1, 1, 1]])


class Recommender(nn.Module):
    """A table for each column, and one that holds the rows of all of them, by offsets."""

    offsets: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in SIZES)
        self.all = nn.Embedding(sum(SIZES), 1)
        self.register_buffer("offsets", torch.tensor([0, *SIZES[:-1]]).cumsum(0))
        self.top = nn.Linear(24, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        deep = self.top(torch.cat([table(part) for table, part in zip(self.tables, ids.unbind(1), strict=True)], 1))
        return deep + self.all(ids + self.offsets).sum(1)


def make() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    return Recommender().eval(), (IDS,), {}
