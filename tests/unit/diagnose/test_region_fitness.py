"""Which submodules cannot be regions: seen in a few calls, so that no trial is spent on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compilot.diagnose.model.region_fitness import unfit_parts
from compilot.records import UnfitPart
from compilot.workload import Workload


class Cache:
    """No tensor, no plain value."""


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, other: Any = None) -> torch.Tensor:
        return self.linear(x)


class Net(nn.Module):
    """Parts that are called with a number, padded to steps of eight, with an object, twice, and as they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.padded, self.cached, self.twice, self.plain, self.never = (Part() for _ in range(6))
        self.longest = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[0]
        self.longest = max(self.longest, length)
        x = self.told(x, length)
        padded = self.padded(nn.functional.pad(x, (0, 0, 0, -length % 8)))[:length]
        x = self.cached(padded, Cache())
        x = self.twice(x) + self.twice(x[:1])
        return self.plain(x.t().contiguous().t())


PATHS = ["told", "padded", "cached", "twice", "plain", "never", "plain"]


def unfit(*, dynamic: bool) -> dict[str, UnfitPart]:
    model = Net().eval()
    load = Workload(model, (torch.randn(16, 4),), dynamic={"x": {0: (2, 64)}} if dynamic else None)
    found = unfit_parts(load, PATHS)
    assert model.longest == 0
    assert not any(module._forward_pre_hooks for module in model.modules())
    return {part.path: part for part in found}


def test_at_declared_sizes_what_varies_in_no_known_way_is_none_for_engines_that_export() -> None:
    found = unfit(dynamic=True)
    assert {path: part.exports_only for path, part in found.items()} == {"told": False, "padded": True, "cached": True}
    assert "value of args[1]" in found["told"].why
    assert "steps of 8" in found["padded"].why
    assert "Cache" in found["cached"].why


def test_without_declared_sizes_only_how_it_is_called_counts() -> None:
    found = unfit(dynamic=False)
    assert {*found} == {"cached", "twice"}
    assert "called in several ways" in found["twice"].why


def test_a_model_that_cannot_be_watched_has_no_such_parts() -> None:
    load = Workload(Net().eval(), (torch.randn(16, 4),))
    assert unfit_parts(load, ["gone"]) == ()


class Limited(nn.Module):
    """Calls its part in another way at the sizes on which it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.part(x, Cache() if x.shape[0] > 16 else None)
        if x.shape[0] > 16:
            raise ValueError("too many rows")
        return x


def test_what_was_seen_before_eager_raised_does_not_count() -> None:
    load = Workload(Limited().eval(), (torch.randn(16, 4),), dynamic={"x": {0: (2, 64)}})
    assert unfit_parts(load, ["part"]) == ()
