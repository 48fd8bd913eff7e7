"""Blocks that are given an object to fill, such as a cache: torch.compile's own guards look into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from regional_runs import regional
from torch import nn

from compilot._tree import Call
from compilot.boundary.build import build
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.records import Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard


class Cache:
    """As those of language models: one entry for each layer, made when it first comes by."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []

    def update(self, key: torch.Tensor, layer: int) -> torch.Tensor:
        if layer == len(self.keys):
            self.keys.append(key)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key])
        return self.keys[layer]


class OtherCache(Cache):
    pass


class Block(nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, cache: Cache, unread: Any) -> torch.Tensor:
        return x + cache.update(torch.tanh(self.linear(x)), self.layer_idx).mean(0)


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(i) for i in range(3))
        self.other = False

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        cache = OtherCache() if self.other else Cache()
        for _ in range(2):  # the second round meets a cache that is filled
            for layer in self.layers:
                x = layer(x, cache, self)
        return {"x": x, "keys": cache.keys}


def started(model: nn.Module, call: Call, folder: Path, settings: Settings) -> Fast:
    candidate = regional(("layers.*", settings))
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    build(BuildRequest(model, call, guard, candidate, folder))
    return attach(model, candidate, guard, folder)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def test_a_cache_is_filled_as_eager_fills_it(tmp_path: Path) -> None:
    model = Caching().eval()
    fast = started(model, Call((torch.randn(2, 4),), {}), tmp_path, Settings(engine="dynamo:eager"))
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(fast(x), model(x))
    regions = fast.stats().regions
    assert {path: (one.fast, one.fallbacks) for path, one in regions.items()} == {
        f"layers.{i}": (6, {}) for i in range(3)
    }
    model.other = True  # an attribute of the model: followed after refresh()
    fast.refresh()
    torch.testing.assert_close(fast(x), model(x))
    assert {*fast.stats().regions["layers.0"].fallbacks} == {
        f"type of args[1]: {__name__}.OtherCache, plan has {__name__}.Cache"
    }


def test_what_cannot_follow_an_object_refuses_it(tmp_path: Path) -> None:
    model, call = Caching().eval(), Call((torch.randn(2, 4),), {})
    with pytest.raises(Infeasible, match=r"^in layers\.0: input args\[1\] is a Cache.*use_cache=False"):
        started(model, call, tmp_path, Settings(engine="onnxruntime"))
    light = Settings(engine="inductor", options={"light_guards": True})
    with pytest.raises(Infeasible, match=r"^in layers\.0: light_guards cannot follow args\[1\]"):
        started(model, call, tmp_path, light)
