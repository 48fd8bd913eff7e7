"""Small models that use inputs as indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Indexing(nn.Module):
    """A function of itself and its inputs; has a table of ten rows, and a buffer of places in it."""

    places: torch.Tensor

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.register_buffer("places", torch.tensor([3, 7]))
        self.run = run
        self.eval()

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


class Routed(nn.Module):
    """Experts for the tokens that a router sends to them, one expert after the other."""

    def __init__(self, experts: int = 3, chosen: int = 2) -> None:
        super().__init__()
        self.router, self.chosen = nn.Linear(4, experts), chosen
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(experts))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, selected = torch.topk(self.router(x).softmax(-1), self.chosen, dim=-1)
        mask = nn.functional.one_hot(selected, len(self.experts)).permute(2, 1, 0)
        answer = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            answer.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return answer
