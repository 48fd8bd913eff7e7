"""What nobody can read is named once and compared at every call; what cannot be found again is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from file_engine import plan_for
from replaceable import Constant, X
from torch import nn

from compilot.engines import registry
from compilot.errors import CompilotWarning, InputError
from compilot.runtime import Fast, unreadable
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
        self.source = self.again = iter([1.0, 2.0])
        self.sources = [iter([3.0])]
        self.chosen = {iter([4.0])}
        self.table = torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = sum(one.__length_hint__() for one in (self.source, self.again, *self.sources, *self.chosen))
        return self.linear(x) * self.table + first


def things_of(model: Model) -> list[Thing]:
    return [
        Thing("source", vars(model), "source", model.source),
        Thing("sources[0]", model.sources, 0, model.sources[0]),
        Thing("table", model, "table", model.table),
        Thing("chosen", model.chosen, None, next(iter(model.chosen))),
    ]


@pytest.fixture
def unread_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody could read the model's tensor either."""
    for module in ("fast", "loading"):
        monkeypatch.setattr(f"compilot.runtime.{module}.unreadable_in", lambda model: Unreadable(things_of(model)))


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    registry.register("constant", None, Constant())
    yield
    registry.unregister("constant")


def compiled(model: nn.Module) -> Fast:
    with pytest.warns(
        CompilotWarning, match=r"cannot be read: .*source \(it is an iterator.*run 'compilot tune' again"
    ):
        return apply_plan(model, plan_for(model, "constant", X), strict=True)


def attribute(model: Model) -> None:
    model.source = iter([1.0, 2.0, 3.0])


def attribute_in_a_second_place(model: Model) -> None:
    model.again = iter([1.0, 2.0, 3.0])


def item(model: Model) -> None:
    model.sources[0] = iter([])


def item_gone(model: Model) -> None:
    del model.sources[0]


def member(model: Model) -> None:
    model.chosen.clear()


def tensor_written(model: Model) -> None:
    model.table.add_(1)


@pytest.mark.parametrize("change", [attribute, attribute_in_a_second_place, item, item_gone, member])
def test_another_object_in_its_place_is_noticed_before_the_next_answer(change):
    noticed_at_once_and_fast_again(change)


@pytest.mark.usefixtures("unread_table")
def test_a_tensor_that_was_written_to_is_noticed_before_the_next_answer():
    noticed_at_once_and_fast_again(tensor_written)


def noticed_at_once_and_fast_again(change: Callable[[Model], None]) -> None:
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
    served = fast.stats().fast
    assert served == 3
    fast.refresh()
    for number in range(1, 4):
        assert torch.equal(fast(X), model(X))
        assert fast.stats().fast == served + number
    model.source = iter([0.0] * 9)  # looked at again, as it was before
    with pytest.warns(CompilotWarning, match="source"):
        assert torch.equal(fast(X), model(X))


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


def test_another_list_around_it_is_noticed_as_an_attribute_is():
    model = Model().eval()
    fast = compiled(model)
    _ = [fast(X) for _ in range(3)]
    model.sources = [iter([5.0, 6.0])]
    with pytest.warns(CompilotWarning, match="sources"):
        answers = [fast(X) for _ in range(257)]
    assert torch.equal(answers[-1], model(X))


def test_a_second_place_that_cannot_be_found_again_does_not_matter():
    model = nn.Linear(3, 3)
    model.source = iter([])
    lost = Thing("scale.cache", {}, "cache", model.source)
    found = Unreadable([lost, Thing("source", vars(model), "source", model.source)])
    assert found.names == ["source"]
    assert not found.changed()


def test_many_names_are_cut_short():
    held = [iter([]) for _ in range(8)]
    sentence = Unreadable([Thing(f"held[{i}]", held, i, one) for i, one in enumerate(held)]).sentence()
    assert "held[2] (it is an iterator), and 5 more." in sentence
    assert "held[3]" not in sentence


def test_a_real_model_is_asked_for_what_its_fingerprint_leaves_out():
    model = Model().eval()
    names = unreadable.unreadable_in(model).names
    assert set(names) == {"chosen{...}", "again", "source", "sources[0]"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not unreadable.unreadable_in(nn.Linear(3, 3))
