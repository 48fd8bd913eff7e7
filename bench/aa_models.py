"""Models of equal layers for bench/aa.py: layers_100, layers_104 ... n layers are n units of work."""

import torch
from torch import nn


class Layers(nn.Module):
    """n times the same matrix product."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.eye(128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = x @ self.weight
        return x


def __getattr__(name: str):
    kind, _, count = name.partition("_")
    if kind != "layers" or not count.isdigit():
        raise AttributeError(name)
    return lambda: (Layers(int(count)).eval(), (torch.randn(64, 128),))
