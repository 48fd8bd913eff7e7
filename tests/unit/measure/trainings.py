"""Small trainings that the judge's tests share."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot import Training

CLASSES = 10


class Net(nn.Module):
    """An embedding, a batch norm, dropout where asked for: everything that a step changes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(CLASSES, 16)
        self.inner = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(F.relu(self.norm(self.inner(self.words(x).mean(1))))))


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch_of(seed: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    words = torch.randint(0, CLASSES, (12, 6), generator=made)
    return words, words[:, 0]


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, 20)


def training(*, dropout: float = 0.0, optimizer: Any = adamw, **more: Any) -> Training:
    torch.manual_seed(0)
    return Training(Net(dropout), loss, optimizer, batch_of, **more)
