"""Columns of an input that have ranges of their own: looked at in every call, before the engine is asked."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import compilot
from compilot import indices
from compilot._tree import Call
from compilot.engines import registry
from compilot.errors import IndexOutOfRange
from compilot.records import (
    Candidate,
    DimRange,
    IndexColumns,
    IndexRange,
    Plan,
    Settings,
    Shapes,
    SizeOf,
    TensorGuard,
    encode,
)
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import in_range, make_guard
from compilot.runtime.indexing import checker, complaint
from compilot.runtime.sources import ApplyOptions, EntryParts
from compilot.workload import Workload
from conftest import FakeEngine

SIZES = (10, 1000, 3, 100)
IDS = torch.tensor([[9, 999, 2, 99], [0, 500, 1, 42]])
EACH = IndexRange(
    low=0,
    high=9,
    dim=1,
    columns=tuple(IndexColumns(first=k, last=k, low=0, high=SIZES[k] - 1) for k in (1, 2, 3)),
)
ANY = (-(2**63), 2**63 - 1)

pytestmark = pytest.mark.usefixtures("no_grad")
Maker = Callable[..., Fast]


class Model(nn.Module):
    """One table for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 4) for size in SIZES)
        self.eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.stack([table(ids[:, k]) for k, table in enumerate(self.tables)])


def with_value(row: int, column: int, value: int) -> torch.Tensor:
    ids = IDS.clone()
    ids[row, column] = value
    return ids


@pytest.fixture
def tuned(engine: FakeEngine) -> Maker:
    """The model behind the fake engine, with the guard that its own analysis gives."""

    def make(model: nn.Module, ids: torch.Tensor = IDS, *, dynamic: Any = (), **options: Any) -> Fast:
        shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
        work = Workload(model, (ids,), dynamic=dynamic)
        how: dict[str, Any] = {"dynamic": work.dynamic, "shapes": shapes, "grad": False}
        guard = make_guard(model, Call((ids,), {}), **how, indices=in_range(indices.find(work), shapes))
        candidate = Candidate(settings=Settings(engine="fake", shapes=shapes), label="fake", rationale="test")
        return attach_parts(model, (EntryParts(candidate, guard, None),), ApplyOptions(**options))

    return make


def test_the_hot_path_serves_what_each_table_has(tuned: Maker, engine: FakeEngine) -> None:
    model = Model()
    fast = tuned(model)
    for ids in (IDS, torch.zeros_like(IDS), (torch.tensor(SIZES) - 1).expand(2, 4).contiguous()):
        assert torch.equal(fast(ids), model(ids))
    assert fast.stats().fast == 3
    assert engine.calls == 2  # the first call is answered by its preparation


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(("column", "bad"), [(0, 10), (0, -1), (1, 1000), (2, 3), (3, 100), (3, -(2**63))])
def test_a_column_out_of_range_reaches_no_engine(
    tuned: Maker, engine: FakeEngine, row: int, column: int, bad: int
) -> None:
    fast = tuned(Model())
    fast(IDS)
    fast(IDS)
    asked = engine.calls
    with pytest.raises(IndexError):
        fast(with_value(row, column, bad))
    assert engine.calls == asked
    fast(IDS)
    assert fast.stats().fast == 3


def guard_of(index: IndexRange, shape: tuple[int | DimRange, ...] = (2, 4), dtype: str = "torch.int64") -> TensorGuard:
    return TensorGuard(path="args[0]", dtype=dtype, device="cpu", shape=shape, stride=None, index=index)


def told(want: TensorGuard, tensor: torch.Tensor, *sizes: int) -> str | None:
    """Why not; None: it is in range."""
    check, found = checker(want)
    assert len(found) == len(sizes)
    return None if check(tensor, *sizes) else complaint(want, tensor, sizes)


@pytest.mark.parametrize(("column", "most"), [(0, 9), (1, 999), (2, 2), (3, 99)])
def test_the_reason_names_the_column(column: int, most: int) -> None:
    assert told(guard_of(EACH), IDS) is None
    reason = f"index out of range at args[0][:, {column}]: plan takes 0..{most}"
    assert told(guard_of(EACH), with_value(1, column, most + 1)) == reason


def test_the_reason_names_a_row_and_a_last_dimension() -> None:
    first = msgspec.structs.replace(EACH, dim=0)
    assert told(guard_of(first, (4, 2)), IDS.t().contiguous()) is None
    reason = "index out of range at args[0][2]: plan takes 0..2"
    assert told(guard_of(first, (4, 2)), with_value(0, 2, 5).t()) == reason
    last = msgspec.structs.replace(EACH, dim=2)
    reason = "index out of range at args[0][:, :, 3]: plan takes 0..99"
    assert told(guard_of(last, (1, 2, 4)), with_value(0, 3, -7)[None]) == reason


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "uint16", "bool"])
def test_every_dtype_of_whole_numbers_is_compared(dtype: str) -> None:
    kind = getattr(torch, dtype)
    want = guard_of(EACH, dtype=f"torch.{dtype}")
    good = IDS.clamp(max=1) if dtype == "bool" else IDS.clamp(max=100)
    assert told(want, good.to(kind)) is None
    if dtype != "bool":
        reason = "index out of range at args[0][:, 0]: plan takes 0..9"
        assert told(want, with_value(0, 0, 10).clamp(max=100).to(kind)) == reason


def test_one_run_of_limited_columns_is_all_that_is_looked_at() -> None:
    low, high = ANY
    free = tuple(IndexColumns(first=k, last=k, low=low, high=high) for k in (0, 3))
    want = guard_of(IndexRange(low=0, high=9, exempt=(-100,), dim=1, columns=free))
    assert told(want, torch.tensor([[low, 0, 9, high]] * 2)) is None
    assert told(want, torch.tensor([[low, -100, 9, high]] * 2)) is None
    reason = "index out of range at args[0][:, 2]: plan takes 0..9 or -100"
    assert told(want, torch.tensor([[low, -100, 10, high]] * 2)) == reason


def test_exempt_values_are_those_of_their_column() -> None:
    own = (IndexColumns(first=2, last=3, low=0, high=4, exempt=(-1,)),)
    want = guard_of(IndexRange(low=0, high=9, exempt=(-100,), dim=1, columns=own))
    assert told(want, torch.tensor([[-100, 9, -1, 4]] * 2)) is None
    assert (
        told(want, torch.tensor([[0, -1, 0, 0]] * 2)) == "index out of range at args[0][:, 1]: plan takes 0..9 or -100"
    )
    assert (
        told(want, torch.tensor([[0, 0, 0, -100]] * 2)) == "index out of range at args[0][:, 3]: plan takes 0..4 or -1"
    )


def test_a_columns_limit_follows_a_size() -> None:
    size = SizeOf(path="args[1]", dim=0, times=1, plus=-1)
    own = (IndexColumns(first=1, last=1, low=0, high=size),)
    want = guard_of(IndexRange(low=0, high=9, dim=1, columns=own), (2, 2))
    assert told(want, torch.tensor([[9, 6], [0, 0]]), 7) is None
    reason = "index out of range at args[0][:, 1]: plan takes 0..(size 0 of args[1] - 1)"
    assert told(want, torch.tensor([[9, 6], [0, 0]]), 6) == reason


def test_no_rows_are_in_range() -> None:
    assert told(guard_of(EACH, (DimRange(min=0, max=9), 4)), torch.zeros(0, 4, dtype=torch.int64)) is None


runs = st.tuples(st.integers(-5, 5), st.integers(0, 9), st.sampled_from([(), (-100,), (7,)]))


@settings(max_examples=200)
@given(
    st.lists(runs, min_size=4, max_size=4),
    st.lists(st.integers(-8, 14) | st.just(-100), min_size=8, max_size=8),
    st.sampled_from([0, 1]),
)
def test_the_check_says_what_a_comparison_of_every_value_says(limits: list[Any], values: list[int], dim: int) -> None:
    low, width, exempt = limits[0]
    own = tuple(IndexColumns(first=k, last=k, low=a, high=a + w, exempt=e) for k, (a, w, e) in enumerate(limits))
    index = IndexRange(low=low, high=low + width, exempt=exempt, dim=dim, columns=own[1:])
    rows = [values[:4], values[4:]]
    right = [own[k].low <= row[k] <= own[k].high or row[k] in own[k].exempt for row in rows for k in range(4)]  # type: ignore[operator]
    tensor = torch.tensor(rows) if dim else torch.tensor(rows).t().contiguous()
    assert (told(guard_of(index, tuple(tensor.shape)), tensor) is None) == all(right)


def test_rows_may_vary_in_number(tuned: Maker, engine: FakeEngine) -> None:
    model = Model()
    fast = tuned(model, dynamic={"ids": {0: (1, 64)}})
    for rows in (2, 5, 5, 5):
        ids = IDS[:1].expand(rows, 4).contiguous()
        assert torch.equal(fast(ids), model(ids))
    assert fast.stats().fast == 4
    with pytest.raises(IndexError):
        fast(with_value(1, 2, 3).repeat(3, 1))
    assert fast.stats().fast == 4


def test_without_the_look_the_engine_gets_everything(engine: FakeEngine, tuned: Maker) -> None:
    class Modest(Model):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids.clamp(max=torch.tensor(SIZES) - 1) if engine.calls else ids)

    fast = tuned(Modest(), check_indices=False)
    fast(IDS)
    fast(IDS)
    fast(with_value(0, 0, 10))
    assert fast.stats().fast == 3


def test_threads_are_told_apart(tuned: Maker) -> None:
    fast = tuned(Model())
    fast(IDS)
    raised: list[int] = []

    def work(ids: torch.Tensor) -> None:
        with torch.no_grad():
            for _ in range(50):
                try:
                    fast(ids)
                except IndexError:
                    raised.append(int(ids[0, 2]))

    threads = [threading.Thread(target=work, args=(ids,)) for ids in (IDS, with_value(0, 2, 3), with_value(0, 2, -1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(raised) == [-1] * 50 + [3] * 50


@pytest.fixture
def files() -> Any:
    fake = FileEngine()
    registry.register("files", None, fake)
    yield fake
    registry.unregister("files")


def planned(model: nn.Module) -> Plan:
    plan = plan_for(model, "files", IDS)
    entry = plan.entries[0]
    tensors = tuple(msgspec.structs.replace(tensor, index=EACH) for tensor in entry.guard.tensors)
    guard = msgspec.structs.replace(entry.guard, tensors=tensors)
    return msgspec.structs.replace(plan, entries=(msgspec.structs.replace(entry, guard=guard),))


def test_the_columns_are_in_the_plan_file(files: FileEngine, tmp_path: Path) -> None:
    model = Model()
    compilot.save_plan(planned(model), tmp_path / "plan.json")
    text = json.loads((tmp_path / "plan.json").read_text())
    own = [[1, 1, 0, 999, []], [2, 2, 0, 2, []], [3, 3, 0, 99, []]]
    assert text["entries"][0]["guard"]["tensors"][0]["index"] == {"low": 0, "high": 9, "dim": 1, "columns": own}
    fast = compilot.compile(model, compilot.load_plan(tmp_path / "plan.json"))
    fast(IDS)
    assert fast.stats().fast == 1
    with pytest.raises(IndexError):
        fast(with_value(0, 2, 3))


def test_without_a_model_a_typed_error_names_the_column(files: FileEngine) -> None:
    fast = compilot.compile(Model(), planned(Model()), keep_model=False, allow_stale=True)
    fast(IDS)
    with pytest.raises(IndexOutOfRange, match=r"index out of range at args\[0\]\[:, 3\]: plan takes 0\.\.99"):
        fast(with_value(1, 3, 100))


def test_columns_sizes_and_exempt_values_survive_a_file() -> None:
    size = SizeOf(path="args[1]", dim=1, times=-1, plus=0)
    own = (IndexColumns(first=1, last=2, low=size, high=7, exempt=(-100, -1)),)
    want = guard_of(IndexRange(low=0, high=9, dim=1, columns=own))
    assert msgspec.json.decode(encode(want), type=TensorGuard) == want
