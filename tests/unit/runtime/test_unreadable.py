"""What nobody can read is named once and compared at every call; what cannot be found again is refused."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from file_engine import plan_for
from replaceable import Constant, X
from torch import nn

from compilot.engines import registry
from compilot.errors import InputError
from compilot.runtime import CompilotWarning, Fast, unreadable
from compilot.runtime import compile as apply_plan
from compilot.runtime.unreadable import Unreadable

pytestmark = pytest.mark.usefixtures("no_grad")


class Thing(NamedTuple):
    path: str
    owner: Any
    key: Any
    value: Any
    why: str = "it is an iterator"


class Model(nn.Module):
    """Computes with things that are read through a dict, an attribute, a list and a set."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.source = iter([1.0, 2.0])
        self.sources = [iter([3.0])]
        self.chosen = {iter([4.0])}
        self.table = torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = sum(one.__length_hint__() for one in (self.source, *self.sources, *self.chosen))
        return self.linear(x) * self.table + first


def things_of(model: Model) -> list[Thing]:
    return [
        Thing("source", vars(model), "source", model.source),
        Thing("sources[0]", model.sources, 0, model.sources[0]),
        Thing("table", model, "table", model.table),
        Thing("chosen", model.chosen, None, next(iter(model.chosen))),
    ]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("compilot.runtime.fast.unreadable_in", lambda model: Unreadable(things_of(model)))
    monkeypatch.setattr("compilot.runtime.loading.unreadable_in", lambda model: Unreadable(things_of(model)))
    registry.register("constant", None, Constant())
    yield
    registry.unregister("constant")


def compiled(model: nn.Module) -> Fast:
    with pytest.warns(CompilotWarning, match=r"cannot be read: source \(it is an iterator\), sources\[0\]"):
        return apply_plan(model, plan_for(model, "constant", X), strict=True)


def attribute(model: Model) -> None:
    model.source = iter([1.0, 2.0, 3.0])


def item(model: Model) -> None:
    model.sources[0] = iter([])


def item_gone(model: Model) -> None:
    del model.sources[0]


def member(model: Model) -> None:
    model.chosen.clear()


def tensor_written(model: Model) -> None:
    model.table.add_(1)


@pytest.mark.parametrize("change", [attribute, item, item_gone, member, tensor_written])
def test_another_object_in_its_place_is_noticed_before_the_next_answer(change):
    model = Model().eval()
    fast, old = compiled(model), model(X)
    for _ in range(3):
        assert torch.equal(fast(X), old)
    assert fast.stats().fast == 3
    change(model)
    with pytest.warns(CompilotWarning, match="changed"):
        answer = fast(X)
    assert torch.equal(answer, model(X))
    assert not torch.equal(answer, old)
    fast.refresh() if model.sources and model.chosen else None


def test_the_same_objects_stay_fast():
    model = Model().eval()
    fast = compiled(model)
    for _ in range(300):
        fast(X)
    assert fast.stats().fast_share == 1.0


def test_what_cannot_be_found_again_is_refused_in_one_sentence(monkeypatch):
    lost = Thing("scale.cache", {}, "cache", iter([]))
    monkeypatch.setattr("compilot.runtime.fast.unreadable_in", lambda model: Unreadable([lost]))
    model = Model().eval()
    plan = plan_for(model, "constant", X)
    with pytest.raises(
        InputError, match=r"the model uses scale\.cache, which cannot be read .* hold it as an attribute"
    ):
        apply_plan(model, plan, strict=True)
    with pytest.warns(CompilotWarning, match=r"scale\.cache.*eager answers"):
        fast = apply_plan(model, plan)
    assert torch.equal(fast(X), model(X))


def test_many_names_are_cut_short():
    held = [iter([]) for _ in range(8)]
    sentence = Unreadable([Thing(f"held[{i}]", held, i, one) for i, one in enumerate(held)]).sentence()
    assert "held[2] (it is an iterator), and 5 more." in sentence
    assert "held[3]" not in sentence


def test_a_real_model_is_asked_for_what_its_fingerprint_leaves_out():
    model = Model().eval()
    names = unreadable.unreadable_in(model).names
    assert {"source", "sources[0]"} <= {name.removeprefix(".") for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not unreadable.unreadable_in(nn.Linear(3, 3))
