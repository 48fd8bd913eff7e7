"""A training with kinks, a max pooling and a ReLU, and a step that takes their other side where values nearly agree.

`OtherSide` does what rounding does: the loss stays, and one value's share of the gradient is another one. It does so
where a step is made for the first time, so that every later look at that step is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot import Training
from compilot.workload.eager_step import EagerStep
from compilot.workload.loop import MakeStep


class Kinks(nn.Module):
    """A convolution, a max pooling, a ReLU, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.pool = nn.Conv1d(2, 8, 3, padding=1), nn.MaxPool1d(2)
        self.relu, self.out = nn.ReLU(), nn.Linear(8 * 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.relu(self.pool(self.inner(x))).flatten(1))
        return out


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch_of(seed: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(256, 2, 16, generator=made), torch.randint(0, 5, (256,), generator=made)


def kinked_training(seed: int, optimizer: Any) -> Training:
    torch.manual_seed(seed)
    return Training(Kinks(), loss, optimizer, batch_of, seed=100 * seed)


class OtherSide(EagerStep):
    """Takes the other side of a kink in some steps, each time such a step is made for the first time."""

    batches: tuple[Any, ...]
    kinks: dict[int, str]  # number of a step, from 1 on: "relu" or "pool"
    made: list[int]  # numbers of the steps, in their order

    now = 0  # the step that is being made; 0: none, or the optimizer alone

    def __call__(self, batch: Any) -> Tensor:
        self.now = self.number_of(batch)
        self.made.append(self.now)
        try:
            return self._taken(batch, self.kinks[self.now]) if self.is_kinked() else super().__call__(batch)
        finally:
            self.now = 0

    def is_kinked(self) -> bool:
        """Whether this step takes the other side this time."""
        return self.now in self.kinks and self.made.count(self.now) == 1

    def _taken(self, batch: Any, name: str) -> Tensor:
        taken = getattr(self.model, name).register_forward_hook(SIDES[name])
        try:
            return super().__call__(batch)
        finally:
            taken.remove()

    def number_of(self, batch: Any) -> int:
        """From 1 on; 0 for other batches."""
        same = (number for number, own in enumerate(self.batches, 1) if torch.equal(own[0], batch[0]))
        return next(same, 0)


def other_side(load: Training, kinks: dict[int, str], kind: type[OtherSide] = OtherSide) -> MakeStep:
    """The way to train that takes the other side of these kinks."""
    made = type(kind.__name__, (kind,), {"batches": load.batches, "kinks": kinks, "made": []})
    return lambda model, loss, optimizer: made(model, loss, optimizer, load.rules)


def _of_the_relu(module: nn.Module, args: tuple[Tensor], out: Tensor) -> Tensor:
    """The value that is nearest to zero has the slope of the other side."""
    given = args[0].reshape(-1)
    place = given.detach().abs().argmin()
    return _with_slope(out, place, given[place] if given[place] <= 0 else -given[place])


def _of_the_pool(module: nn.Module, args: tuple[Tensor], out: Tensor) -> Tensor:
    """Of the two values that are nearest to each other the smaller one is taken."""
    pairs = args[0].reshape(-1, 2)
    apart = (pairs[:, 0] - pairs[:, 1]).detach().abs()
    place = apart.where(pairs.detach().amax(1) > 0, torch.inf).argmin()  # the ReLU lets it through
    return _with_slope(out, place, pairs[place].min() - pairs[place].max())


def _with_slope(out: Tensor, place: Tensor, value: Tensor) -> Tensor:
    """The same values, and the slope of this one added in one place."""
    there = F.one_hot(place, out.numel()).to(out.dtype).reshape(out.shape)
    return out + there * (value - value.detach())


SIDES: dict[str, Callable[..., Tensor]] = {"relu": _of_the_relu, "pool": _of_the_pool}
