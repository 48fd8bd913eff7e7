"""Targets for which the right decision is known."""

import numpy as np
import torch
from torch import nn


class TwoOps(nn.Module):
    """So little work that a guard costs more than the model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + 1)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x))


class Unseedable(nn.Module):
    """Random numbers that are not torch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(np.random.default_rng().random(32)).float()


class NoisyImages(nn.Module):
    """Draws random numbers in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y + 0.1 * torch.rand(y.shape)


class Checked(nn.Module):
    """Looks at its values, unless somebody compiles it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not torch.compiler.is_compiling() and not x.any():
            raise ValueError("nothing but zeros")
        y = self.linear(x)
        return y, y, y.view(-1)


class Asserting(nn.Module):
    """Looks at its values by an operator, which only some formats have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x.any(), "nothing but zeros")
        return self.linear(x)


class Chain(nn.Module):
    """Many small operations over a sequence of any length: fusing them pays."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.tanh(x * 1.01 + 0.1).sin().cos() - x.mean(dim=-1, keepdim=True)
        return self.linear(x)


class LongChain(nn.Module):
    """Two hundred operators over a few numbers: eager spends its time between them, and whoever fuses them wins."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(50):
            x = x + torch.tanh(x + 0.01 * step) * 0.02  # far from a fixed point: the answer depends on the input
        return x


def two_ops():
    return TwoOps().eval(), (torch.randn(4),)


def dropping():
    return Dropping().train(), (torch.randn(8, 32),)


def unseedable():
    return Unseedable().train(), (torch.randn(8, 32),)


def noisy_images():
    return NoisyImages().eval(), (torch.randn(2, 3, 12, 12),)


def checked():
    return Checked().eval(), (torch.randn(8, 32),)


def asserting():
    torch.manual_seed(0)
    return Asserting().eval(), (torch.randn(8, 32),)


def chain():
    torch.manual_seed(0)
    return Chain().eval(), (torch.randn(2, 64, 64),)


def long_chain():
    torch.manual_seed(0)
    return LongChain().eval(), (torch.randn(4, 16),)
