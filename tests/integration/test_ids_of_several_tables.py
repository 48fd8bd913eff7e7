"""One tensor of ids for several tables with a real engine: it serves what every table has, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import recommender
import torch
from making_runs import make_run
from one_trial import try_one
from recommender import IDS, SIZES
from torch import nn

import compilot
from compilot import indices
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.errors import IndexOutOfRange
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Candidate, IndexColumns, IndexRange, Settings, Shapes, State
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.trials.refusing import refusal
from compilot.workload import Workload


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Fast]:
    pytest.importorskip("onnxruntime")
    model, call = recommender.make()[0], Call((IDS,), {})
    facts = indices.find(Workload(model, (IDS,)))
    candidate = Candidate(settings=Settings(engine="onnxruntime"), label="onnxruntime", rationale="test")
    assert refusal(candidate, facts, dynamic=False) is None
    how: dict[str, Any] = {"dynamic": (), "shapes": Shapes.STATIC, "grad": False}
    guard = make_guard(model, call, **how, indices=facts.ranges)
    folder: Path = tmp_path_factory.mktemp("built")
    with torch.no_grad():
        registry.build_half("onnxruntime").build(BuildRequest(model, call, guard, candidate, folder))
        return model, attach(model, candidate, guard, folder)


OWN_RANGES = IndexRange(
    low=0,
    high=9,
    dim=1,
    columns=(IndexColumns(first=1, last=1, low=0, high=299), IndexColumns(first=2, last=2, low=0, high=2)),
)


@torch.no_grad()
def test_a_trial_of_a_run_has_the_ranges_in_its_guard_and_so_has_its_plan(tmp_path: Path) -> None:
    """From eager's worker, which finds them, through the runner to the candidate's worker, the plan and its calls."""
    pytest.importorskip("onnxruntime")
    tried = try_one(f"{recommender.__file__}:make", "onnxruntime", tmp_path)
    assert tried.trial.state is State.OK, tried.trial.reason
    assert tried.trial.guard is not None
    assert {one.path: one.index for one in tried.trial.guard.tensors} == {"args[0]": OWN_RANGES}
    model = recommender.make()[0]
    fast = compilot.compile(model, tried.plan(), folder=tmp_path, strict=True)
    assert torch.allclose(fast(IDS), model(IDS), atol=1e-5)
    for column, first_missing in enumerate(SIZES):
        ids = IDS.clone()
        ids[3, column] = first_missing
        with pytest.raises(IndexError):
            fast(ids)
    assert fast.stats().fast == 1


@torch.no_grad()
def test_every_table_is_served_to_its_last_row(served: tuple[nn.Module, Fast]) -> None:
    model, fast = served
    before = fast.stats().fast
    for ids in (IDS, torch.zeros_like(IDS), (torch.tensor(SIZES) - 1).repeat(4, 1)):
        assert torch.allclose(fast(ids), model(ids), atol=1e-5)
    assert fast.stats().fast == before + 3


@torch.no_grad()
@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("value", ["first that is missing", -1, 2**40])
def test_eager_raises_for_a_row_that_a_table_has_not(served: tuple[nn.Module, Fast], column: int, value: Any) -> None:
    model, fast = served
    ids = IDS.clone()
    ids[2, column] = SIZES[column] if isinstance(value, str) else value
    before = fast.stats().fast
    for one in (model, fast):
        with pytest.raises(IndexError):
            one(ids)
    assert fast.stats().fast == before


@torch.no_grad()
def test_a_bundle_has_the_ranges_of_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    run = make_run(tmp_path / "run", "onnxruntime", f"{recommender.__file__}:make", recommender.make())
    plan = compilot.load_plan(run / "plan.json")
    entry, ranges = plan.entries[0], indices.find(Workload(recommender.make()[0], (IDS,))).ranges
    tensors = tuple(msgspec.structs.replace(one, index=ranges[one.path]) for one in entry.guard.tensors)
    entry = msgspec.structs.replace(entry, guard=msgspec.structs.replace(entry.guard, tensors=tensors))
    compilot.save_plan(msgspec.structs.replace(plan, entries=(entry,)), run / "plan.json")
    bundle = tmp_path / "model.cpbundle"
    pack([run], bundle, PackOptions(), Observer())
    for look in (True, False):
        fast = compilot.load(bundle, check_indices=look)
        assert torch.allclose(fast(IDS), recommender.make()[0](IDS), atol=1e-5)
    fast = compilot.load(bundle)
    with pytest.raises(IndexOutOfRange, match=r"index out of range at args\[0\]\[:, 2\]: plan takes 0\.\.2"):
        fast(IDS + torch.tensor([0, 0, 1]))
