"""A small transformer with six like blocks, as a target: each knows its place, and uses it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(
        self, hidden: torch.Tensor, *, mask: torch.Tensor, position: tuple[torch.Tensor, int], cache: Any = None
    ) -> tuple[torch.Tensor, Any]:
        batch, length, width = hidden.shape
        heads = self.qkv(self.norm(hidden) + position[0] * position[1]).view(batch, length, 3, 2, width // 2)
        query, key, value = (heads[:, :, i].transpose(1, 2) for i in range(3))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width)) / (self.layer_idx + 1)
        return hidden + self.down(nn.functional.gelu(self.up(hidden))), cache


class Six(nn.Module):
    def __init__(self, width: int = 16, blocks: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList(Block(width, i) for i in range(blocks))
        self.last = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.first(x)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        position = torch.linspace(0, 1, x.shape[2]).expand(x.shape[1], -1)
        for layer in self.layers:
            hidden, _ = layer(hidden, mask=mask, position=(position, 2), cache=None)
        return {"logits": self.last(hidden)}


def model() -> Six:
    torch.manual_seed(3)
    return Six().eval()


def batch(size: int = 2) -> torch.Tensor:
    torch.manual_seed(size)
    return torch.randn(size, 5, 16)


def six() -> tuple[Six, tuple[torch.Tensor, ...], dict[str, Any]]:
    return model(), (batch(),), {}


class Choosy(Block):
    """What it does depends on values: no export takes it."""

    def forward(self, hidden: torch.Tensor, **others: Any) -> tuple[torch.Tensor, Any]:
        return super().forward(hidden if hidden.abs().sum() > 1e-3 else hidden + 1, **others)


def choosy() -> tuple[Six, tuple[torch.Tensor, ...], dict[str, Any]]:
    """One of the six cannot be exported."""
    made = model()
    made.layers[3] = Choosy(16, 3).eval()
    return made, (batch(),), {}


@torch.library.custom_op("six_blocks::shifted", mutates_args=())
def shifted(hidden: torch.Tensor) -> torch.Tensor:
    """An operator of this file, which no other format knows."""
    return hidden + 0.5


@shifted.register_fake
def _(hidden: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(hidden)


class Shifting(Block):
    """Every export takes it; files of other engines have no form of its operator."""

    def forward(self, hidden: torch.Tensor, **others: Any) -> tuple[torch.Tensor, Any]:
        return super().forward(shifted(hidden), **others)


def _wide(kind: type[Block]) -> tuple[Six, tuple[torch.Tensor, ...], dict[str, Any]]:
    """Six blocks of which each is worth a region, one of them of this kind."""
    torch.manual_seed(3)
    made = Six(width=128).eval()
    made.layers[3] = kind(128, 3).eval()
    return made, (torch.randn(4, 64, 128),), {}


def choosy_wide() -> tuple[Six, tuple[torch.Tensor, ...], dict[str, Any]]:
    """What one of the six does depends on values."""
    return _wide(Choosy)


def own_operator_wide() -> tuple[Six, tuple[torch.Tensor, ...], dict[str, Any]]:
    """One of the six calls an operator of its own."""
    return _wide(Shifting)


def sized() -> Any:
    """One of them, with a batch and a length that vary."""
    from compilot import Workload

    torch.manual_seed(3)
    return Workload(Six(blocks=1).eval(), (batch(),), dynamic={"x": {0: (1, 4), 1: (2, 9)}})
