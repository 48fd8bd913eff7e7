"""A plan made under one default dtype of torch takes no calls under another: new tensors would have another dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import NoFallback
from compilot.records import Candidate, Guard, Settings, Shapes, Shipment
from compilot.runtime.fast import attach, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.sources import ApplyOptions, EntryParts
from compilot.workload import Workload
from compilot.workload.shipping import ship, unship

X = torch.ones(2, 3)
OTHERS = [torch.float64, torch.bfloat16, torch.float16]


class Positions(nn.Module):
    """Makes a tensor of its own, as position codes and masks are made; its dtype is torch's default."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double() * torch.full((3,), 0.1)


class Integers(nn.Module):
    """No floating tensor goes in, and what comes out has the default dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.long() / 3


class Compiled:
    """As a compiler would: the numbers of the default dtype that was there when it was built."""

    TRAITS = EngineTraits(version="1")

    def load(self, request: LoadRequest) -> Loaded:
        def call(x: torch.Tensor) -> torch.Tensor:
            if isinstance(request.model, Integers):
                return x.long().to(torch.float32) / 3
            return x.double() * torch.full((3,), 0.1, dtype=torch.float32)

        return Loaded(call=call, needs_model=False)


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    registry.register("compiled", None, Compiled())
    yield
    registry.unregister("compiled")
    torch.set_default_dtype(torch.float32)


def guard_of(model: nn.Module) -> Guard:
    return make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)


CANDIDATE = Candidate(settings=Settings(engine="compiled"), label="compiled", rationale="test")


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
@pytest.mark.parametrize("make", [Positions, Integers])
@torch.no_grad()
def test_another_default_dtype_goes_to_eager_before_the_next_answer(make: Callable[[], nn.Module], dtype: torch.dtype):
    model = make().eval()
    fast: Any = attach(model, CANDIDATE, guard_of(model), None)
    assert torch.equal(fast(X), model(X))
    torch.set_default_dtype(dtype)
    for _ in range(3):  # by the slow path and whatever it opened
        assert fast(X).dtype is model(X).dtype
        assert torch.equal(fast(X), model(X))
    torch.set_default_dtype(torch.float32)
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fallbacks == {f"default dtype: {dtype}, plan has torch.float32": 6}
    assert fast.stats().fast == 2


@torch.no_grad()
def test_a_plan_made_under_another_default_takes_only_those_calls():
    torch.set_default_dtype(torch.float64)
    model = Positions().eval()
    guard = guard_of(model)
    assert guard.default_dtype == "torch.float64"
    fast: Any = attach(model, CANDIDATE, guard, None)
    fast(X)
    torch.set_default_dtype(torch.float32)
    fast(X)
    assert fast.stats().fast == 1
    assert fast.stats().fallbacks == {"default dtype: torch.float32, plan has torch.float64": 1}


def test_a_plan_of_before_this_was_recorded_was_made_under_torchs_own_default():
    text = b'{"positional": 1, "keywords": [], "tensors": []}'
    assert msgspec.json.decode(text, type=Guard).default_dtype == "torch.float32"


@torch.no_grad()
def test_without_the_weights_the_call_is_refused_with_what_to_do():
    model = Positions().eval()
    fast: Any = attach(model, CANDIDATE, guard_of(model), None, keep_model=False)
    fast(X)
    torch.set_default_dtype(torch.float64)
    with pytest.raises(NoFallback, match=r"default dtype: torch.float64.*torch.set_default_dtype"):
        fast(X)


@torch.no_grad()
def test_a_file_without_a_model_answers_as_it_was_made():
    model = Positions().eval()
    part = EntryParts(CANDIDATE, guard_of(model), None)
    fast: Any = attach_parts(model, (part,), ApplyOptions(keep_model=False), stand_in=True)
    before = fast(X)
    torch.set_default_dtype(torch.float64)
    assert torch.equal(fast(X), before)
    assert fast.stats().fast == 2


def test_live_objects_are_tuned_under_the_default_they_were_given_under(tmp_path: Path):
    torch.set_default_dtype(torch.float64)
    shipment = ship(Workload(Positions().eval(), (X,)), tmp_path)
    torch.set_default_dtype(torch.float32)  # as in a new process
    unship(msgspec.json.decode(msgspec.json.encode(shipment), type=Shipment))
    assert torch.get_default_dtype() is torch.float64
