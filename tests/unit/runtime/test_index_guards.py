"""Calls whose indices are out of range: the engine never sees them, eager answers and raises."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from file_engine import FileEngine, plan_for
from torch import nn

import compilot
from compilot._tree import Call
from compilot.engines import registry
from compilot.errors import IndexOutOfRange, NoFallback
from compilot.records import Candidate, DynamicDim, IndexRange, Plan, Settings, Shapes, SizeOf, TensorGuard, encode
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.sources import ApplyOptions, EntryParts
from conftest import FakeEngine

IDS = torch.tensor([[1, 2, 3]])
TEN = IndexRange(low=0, high=9)

pytestmark = pytest.mark.usefixtures("no_grad")


class Model(nn.Module):
    """Ten rows, looked up; notes how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.eval()

    def forward(self, ids: torch.Tensor, x: torch.Tensor | None = None) -> torch.Tensor:
        return self.table(ids) if x is None else x.gather(1, ids)


Maker = Callable[..., Fast]


@pytest.fixture
def guarded(engine: FakeEngine) -> Maker:
    """guarded(model, *args, indices=...): the model behind the fake engine, its index inputs guarded."""

    def make(model: nn.Module, *args: Any, indices: dict[str, IndexRange], dynamic: Any = (), **options: Any) -> Fast:
        shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
        how: dict[str, Any] = {"dynamic": dynamic, "shapes": shapes, "grad": False}
        guard = make_guard(model, Call(args, {}), **how, indices=indices)
        candidate = Candidate(settings=Settings(engine="fake", shapes=shapes), label="fake", rationale="test")
        return attach_parts(model, (EntryParts(candidate, guard, None),), ApplyOptions(**options))

    return make


@pytest.mark.parametrize("bad", [10, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("warm", [True, False])
def test_out_of_range_eager_raises_and_the_engine_is_not_asked(
    guarded: Maker, engine: FakeEngine, bad: int, warm: bool
) -> None:
    fast = guarded(Model(), IDS, indices={"args[0]": TEN})
    for _ in range(3 if warm else 0):
        fast(IDS)
    asked = engine.calls, len(engine.prepared)
    with pytest.raises(IndexError, match="index out of range"):
        fast(torch.tensor([[1, bad, 3]]))
    assert (engine.calls, len(engine.prepared)) == asked


def test_in_range_the_hot_path_serves(guarded: Maker, engine: FakeEngine) -> None:
    model = Model()
    fast = guarded(model, IDS, indices={"args[0]": TEN})
    for ids in (IDS, torch.tensor([[0, 9, 5]]), torch.tensor([[9, 9, 9]])):
        assert torch.equal(fast(ids), model(ids))
    assert fast.stats().fast == 3
    assert engine.calls == 2  # the first call is answered by its preparation


def test_after_a_refused_call_the_hot_path_is_still_open(guarded: Maker) -> None:
    fast = guarded(Model(), IDS, indices={"args[0]": TEN})
    fast(IDS)
    with pytest.raises(IndexError):
        fast(IDS + 9)
    fast(IDS)
    assert fast.stats().fallbacks == {}
    assert fast.stats().fast == 2


def test_what_eager_answers_all_the_same_is_counted_with_its_reason(guarded: Maker) -> None:
    model = Model()
    fast = guarded(model, IDS, indices={"args[0]": IndexRange(low=0, high=4)})
    fast(IDS)
    assert torch.equal(fast(IDS + 3), model(IDS + 3))
    assert fast.stats().fallbacks == {"index out of range at args[0]: plan takes 0..4": 1}


def test_exempt_values_are_in_range_whatever_else_there_is(guarded: Maker) -> None:
    scores = torch.randn(3, 5)
    model = Loss()
    fast = guarded(
        model, scores, torch.tensor([0, 1, 2]), indices={"args[1]": IndexRange(low=0, high=4, exempt=(-100,))}
    )
    for labels in ([0, 1, 2], [-100, 4, 0], [-100, -100, 1]):
        assert torch.equal(fast(scores, torch.tensor(labels)), model(scores, torch.tensor(labels)))
    assert fast.stats().fast == 3
    for labels in ([-100, 5, 0], [-99, 0, 0], [-1, -100, -100]):
        with pytest.raises(IndexError, match="out of bounds"):
            fast(scores, torch.tensor(labels))


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eval()

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores, labels)


def test_a_limit_that_is_a_size_is_read_from_the_call(guarded: Maker, engine: FakeEngine) -> None:
    model = Model()
    dims = (DynamicDim(input="x", dim=1, min=1, max=9),)
    last = SizeOf(path="args[1]", dim=1, times=1, plus=-1)
    first, ids = torch.randn(2, 4), torch.tensor([[3], [0]])
    fast = guarded(model, ids, first, indices={"args[0]": IndexRange(low=0, high=last)}, dynamic=dims)
    for size in (4, 7, 4, 7):
        x, ids = torch.randn(2, size), torch.tensor([[size - 1], [0]])
        assert torch.equal(fast(ids, x), model(ids, x))
        with pytest.raises(RuntimeError, match="out of bounds"):
            fast(ids + 1, x)
    assert fast.stats().fast == 4
    assert fast.stats().fallbacks == {}


@pytest.mark.parametrize("shape", [(1, 1), ()])
def test_a_single_index_is_looked_at(guarded: Maker, engine: FakeEngine, shape: tuple[int, ...]) -> None:
    index = IndexRange(low=0, high=8, exempt=(9,))
    fast = guarded(Model(), torch.full(shape, 3), indices={"args[0]": index})
    for value in (0, 8, 9):
        fast(torch.full(shape, value))
    assert fast.stats().fast == 3
    for value in (-1, 10):
        with pytest.raises(IndexError):
            fast(torch.full(shape, value))
    assert engine.calls == 2


def test_no_index_at_all_is_in_range(guarded: Maker) -> None:
    dims = (DynamicDim(input="ids", dim=1, min=0, max=9),)
    fast = guarded(Model(), IDS, indices={"args[0]": TEN}, dynamic=dims)
    for _ in range(2):
        assert fast(torch.empty(1, 0, dtype=torch.int64)).shape == (1, 0, 4)
    assert fast.stats().fast == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_strided_and_narrow_indices_are_looked_at_too(guarded: Maker, dtype: torch.dtype) -> None:
    ids = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=dtype).t()
    fast = guarded(Model(), ids, indices={"args[0]": TEN})
    fast(ids)
    with pytest.raises(IndexError):
        fast(torch.tensor([[1, 2], [3, 10], [5, 6]], dtype=dtype).t())


def test_indices_in_keywords_and_containers_are_looked_at(engine: FakeEngine) -> None:
    class Nested(Model):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
            return self.table(batch["ids"])

    model = Nested()
    how: dict[str, Any] = {"dynamic": (), "shapes": Shapes.STATIC, "grad": False}
    call = Call((), {"batch": {"ids": IDS}})
    guard = make_guard(model, call, **how, indices={"kwargs['batch']['ids']": TEN})
    candidate = Candidate(settings=Settings(engine="fake"), label="fake", rationale="test")
    fast = attach_parts(model, (EntryParts(candidate, guard, None),))
    fast(batch={"ids": IDS})
    with pytest.raises(IndexError):
        fast(batch={"ids": IDS + 8})
    with pytest.raises(IndexError):
        fast({"ids": IDS + 8})
    assert engine.calls == 0


def test_threads_do_not_share_what_they_look_at(guarded: Maker) -> None:
    fast = guarded(Model(), IDS, indices={"args[0]": TEN})
    fast(IDS)
    raised = []

    def work(ids: torch.Tensor) -> None:
        with torch.no_grad():
            for _ in range(50):
                try:
                    fast(ids)
                except IndexError:
                    raised.append(int(ids.max()))

    threads = [threading.Thread(target=work, args=(ids,)) for ids in (IDS, IDS + 9, IDS - 5, IDS + 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(raised) == [-2] * 50 + [12] * 50


def test_without_the_look_the_engine_gets_everything(guarded: Maker, engine: FakeEngine) -> None:
    fast = guarded(Model(), IDS, indices={"args[0]": IndexRange(low=0, high=4)}, check_indices=False)
    fast(IDS)
    fast(IDS + 5)
    assert fast.stats().fast == 2
    assert engine.calls == 1


@pytest.fixture
def files() -> Any:
    fake = FileEngine()
    registry.register("files", None, fake)
    yield fake
    registry.unregister("files")


def planned(model: nn.Module, index: IndexRange = TEN) -> Plan:
    plan = plan_for(model, "files", IDS)
    entry = plan.entries[0]
    guard = msgspec.structs.replace(
        entry.guard, tensors=tuple(msgspec.structs.replace(t, index=index) for t in entry.guard.tensors)
    )
    return msgspec.structs.replace(plan, entries=(msgspec.structs.replace(entry, guard=guard),))


def test_the_range_is_in_the_plan_file(files: FileEngine, tmp_path: Path) -> None:
    model = Model()
    compilot.save_plan(planned(model), tmp_path / "plan.json")
    text = json.loads((tmp_path / "plan.json").read_text())
    assert text["entries"][0]["guard"]["tensors"][0]["index"] == {"low": 0, "high": 9}
    fast = compilot.compile(model, compilot.load_plan(tmp_path / "plan.json"))
    fast(IDS)
    assert fast.stats().fast == 1
    with pytest.raises(IndexError):
        fast(IDS + 9)


@pytest.mark.parametrize(("look", "fast_calls"), [(True, 1), (False, 2)])
def test_the_look_can_be_left_out(files: FileEngine, look: bool, fast_calls: int) -> None:
    model = Model()
    fast = compilot.compile(model, planned(model, IndexRange(low=0, high=4)), check_indices=look)
    fast(IDS)
    fast(IDS + 5)
    assert fast.stats().fast == fast_calls


def test_without_a_model_a_typed_error_says_what_is_wrong(files: FileEngine) -> None:
    fast = compilot.compile(Model(), planned(Model()), keep_model=False, allow_stale=True)
    assert fast(IDS).shape == (1, 3, 4)
    with pytest.raises(IndexOutOfRange, match=r"index out of range at args\[0\]: plan takes 0\.\.9") as told:
        fast(IDS + 9)
    assert isinstance(told.value, NoFallback)
    assert isinstance(told.value, IndexError)
    assert "see that the input holds indices that exist" in str(told.value)


def test_sizes_and_exempt_values_survive_a_file() -> None:
    size = SizeOf(path="args[1]", dim=1, times=-1, plus=0)
    index = IndexRange(low=size, high=7, exempt=(-100,))
    guard = TensorGuard(path="args[0]", dtype="torch.int64", device="cpu", shape=(1,), stride=(1,), index=index)
    assert msgspec.json.decode(encode(guard), type=TensorGuard) == guard
