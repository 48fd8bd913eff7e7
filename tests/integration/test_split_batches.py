"""Batch sizes with real processes and a real engine: the proof, a plan that cuts large calls, its replay and bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from policy_runs import PolicyRun, run_policy

import compilot
from compilot.api.batch_sizes import batch_requests, with_batch_dimension
from compilot.errors import CompilotError
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import (
    CostPoint,
    Plan,
    ProgramCost,
    ShapeCosts,
    ShapePolicy,
)
from compilot.tuning.size_notes import may_be_cut, usable_padding
from compilot.workload.dispatch import ship_target
from compilot.workload.target import load_target

pytestmark = pytest.mark.compiles
ENGINE = "onnxruntime"
SIZES = (1, 2, 4, 8)
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x, scale):
        made = self.b(torch.relu(self.a(x))) * scale
        return {"scores": made, "pairs": torch.stack([made, -made])}  # rows in the second dimension, too

def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 6), torch.randn(4, 1))
"""


def costs(*, static: bool, dynamic: bool) -> ShapeCosts:
    """Made up: calls of more than two rows are dear, so that they are cut."""

    def cost(times: float) -> ProgramCost:
        points = [CostPoint(sizes=(n,), call_s=times * (1.0 + n if n <= 2 else 10.0 * n)) for n in SIZES]
        return ProgramCost(points=tuple(points))

    return ShapeCosts(
        eager=cost(10.0),
        static=cost(1.0) if static else None,
        dynamic=cost(3.0) if dynamic else None,
        may_pad=True,
        may_split=True,
    )


class Cut(NamedTuple):
    """A run, and the file of its model."""

    net: Path
    run: PolicyRun


@pytest.fixture(scope="module", params=["static", "dynamic"])
def cut(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cut:
    pytest.importorskip(ENGINE)
    net, requests = tmp_path_factory.mktemp("batches") / "net.py", batch_requests(SIZES)
    net.write_text(NET)
    assert requests is not None
    shipment = ship_target(f"{net}:factory", extra_dynamic=with_batch_dimension((), SIZES))
    shipment, is_static = requests.on(shipment, later=True), request.param == "static"
    made_up = costs(static=is_static, dynamic=not is_static)
    run = run_policy(net.parent / "run", shipment, requests, ENGINE, made_up, largest=8, replayed=48, batch_sizes=SIZES)
    return Cut(net, run)


def test_batch_sizes_are_the_traffic_and_parts_are_proven(cut: Cut) -> None:
    [dim] = cut.run.traffic.dims
    assert (dim.name, dim.min, dim.max, len(dim.places)) == ("scale:0", 1, 8, 2)  # both inputs have the batch
    assert [one.sizes for one in cut.run.traffic.demand] == [(1,), (2,), (4,), (8,)]
    assert cut.run.proof.padding is not None
    assert cut.run.proof.padding.dims[0].in_parts
    assert may_be_cut(usable_padding(cut.run.proof, cut.run.traffic), cut.run.traffic)


def test_the_plan_says_what_is_cut_and_its_replay_was_fast_throughout(cut: Cut) -> None:
    assert cut.run.policy.record.policy is ShapePolicy.SPLIT
    assert cut.run.policy.record.splits
    [entry] = [entry for entry in cut.run.plan.entries if entry.split is not None]
    assert entry.split is not None
    assert entry.split.rows == 2
    assert entry.split.batch.size == 8
    assert cut.run.replay.seen[cut.run.policy.arm.id].fast_share == 1.0


def same(fast: torch.nn.Module, model: torch.nn.Module, rows: int) -> None:
    call = torch.randn(rows, 6), torch.randn(rows, 1)
    with torch.no_grad():
        found, expected = fast(*call), model(*call)
    assert found.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(found[key], expected[key], rtol=1e-4, atol=1e-5)
        assert found[key].stride() == expected[key].stride()


def test_every_declared_size_is_answered_fast_and_others_by_eager(cut: Cut) -> None:
    model = load_target(f"{cut.net}:factory").model
    fast = compilot.compile(model, cut.run.folder)
    for rows in range(1, 9):
        same(fast, model, rows)
    assert (fast.stats().fast, fast.stats().fallbacks) == (8, {})
    same(fast, model, 9)  # beyond the proof
    assert fast.stats().fast == 8


def test_its_bundle_cuts_as_well_and_needs_no_model(cut: Cut, tmp_path: Path) -> None:
    packed = pack([cut.run.folder], tmp_path / "net.cpbundle", PackOptions(), Observer())
    fast = compilot.load(packed.path)
    model = load_target(f"{cut.net}:factory").model
    for rows in range(1, 9):
        same(fast, model, rows)
    assert fast.stats().fast_share == 1.0
    with pytest.raises(CompilotError):
        same(fast, model, 9)


FOLDED = """
import torch
from torch import nn

class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x):
        weight = self.weight
        for _ in range(200):  # of constants alone: an engine does it once, when it is built, and eager in every call
            weight = torch.tanh(weight) + weight * 0.5
        return x @ weight

def factory():
    torch.manual_seed(0)
    return Folded().eval(), (torch.randn(4, 64),)
"""


@pytest.mark.slow
@pytest.mark.measures
def test_tune_chooses_a_plan_for_batch_sizes_and_shows_it_at_each(
    tmp_path: Path, as_measured: Callable[[Plan], object]
) -> None:
    """However fast the machine is, hundreds of operators in eager are slower than none, at every size."""
    pytest.importorskip(ENGINE)
    (tmp_path / "folded.py").write_text(FOLDED)
    target, out = f"{tmp_path / 'folded.py'}:factory", tmp_path / "run"
    plan = compilot.tune(target, batch_sizes=SIZES, engines=ENGINE, budget="75s", out=out, progress=False)
    assert plan.entries, plan.because
    assert "of 4 batch sizes, in fresh processes" in plan.because
    found = compilot.results(plan).batches
    assert found is not None
    own = [point for point in found.points if point.candidate != "eager"]
    assert [point.batch for point in own] == list(SIZES)
    assert all(point.versus_eager.ratio > 1.5 for point in own if point.versus_eager is not None)
    assert {one.candidate for one in found.advice} == {point.candidate for point in found.points}
    model = load_target(target).model
    as_measured(plan)
    fast = compilot.compile(model, plan)
    for rows in range(1, 9):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert fast.stats().fast_share == 1.0
