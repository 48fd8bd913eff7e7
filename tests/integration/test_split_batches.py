"""Batch sizes with real processes and a real engine: the proof, a plan that cuts large calls, its replay and bundle."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch

import compilot
from compilot.api.batch_sizes import batch_requests, with_batch_dimension
from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    CostPoint,
    EngineSizes,
    Evidence,
    PaddingProof,
    Plan,
    ProgramCost,
    Settings,
    ShapeCosts,
    ShapePolicy,
    Shapes,
    Traffic,
)
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import FreshReplay, ReplayRules
from compilot.tuning.budget import Budget
from compilot.tuning.comparing import try_eager, try_one
from compilot.tuning.journal import RunJournal, make_header
from compilot.tuning.options import TuneOptions
from compilot.tuning.replays import Made
from compilot.tuning.serving import may_be_cut, usable_padding
from compilot.tuning.size_arms import Base, Policy, made
from compilot.tuning.size_costs import SizePrograms
from compilot.verdict.policies import ShapeRules, choose
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
DYNAMIC = Candidate(settings=Settings(engine=ENGINE, shapes=Shapes.DYNAMIC), label=ENGINE, rationale="a test")


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
    """What a run with real processes gave."""

    folder: Path
    net: Path
    traffic: Traffic
    proof: PaddingProof
    policy: Made
    replay: FreshReplay
    plan: Plan


@pytest.fixture(scope="module", params=["static", "dynamic"])
def cut(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cut:
    pytest.importorskip(ENGINE)
    net = tmp_path_factory.mktemp("batches") / "net.py"
    net.write_text(NET)
    requests, observer = batch_requests(SIZES), Observer()
    assert requests is not None
    shipment = ship_target(f"{net}:factory", extra_dynamic=with_batch_dimension((), SIZES))
    shipment = requests.on(shipment, later=True)
    options = TuneOptions(budget_s=600.0, trace=requests.trace, batch_sizes=SIZES)
    run_dir, own = (
        RunDir.make(net.parent / "run"),
        costs(static=request.param == "static", dynamic=request.param != "static"),
    )
    with (
        RunJournal(run_dir, options, Budget(600.0), observer) as journal,
        LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=observer) as runner,
    ):
        model, seen = runner.open(shipment), runner.inspect()
        journal.begin(model, seen)
        traffic, proof = runner.read_traffic(requests.trace.sizes), runner.prove_padding()
        try_eager(runner, 60.0)
        base = Base(DYNAMIC, try_one(runner, DYNAMIC, 120.0))
        choice = choose(traffic.demand, own, ShapeRules(max_entries=3, largest=(8,)))
        policy = Policy(EngineSizes(engine=ENGINE, label=ENGINE, costs=own, choice=choice), choice.chosen, base)
        programs, padding = SizePrograms(runner, journal, traffic, observer), usable_padding(proof, traffic)
        one = made(policy, 0, programs, traffic, padding, 120.0)
        assert isinstance(one, Made), one
        replay = runner.replay([one.arm], ReplayRules(48))
        header = make_header(model.ref, seen.fingerprint, options)
    plan = Plan(
        schema=4,
        compilot="0",
        created=header.created,
        workload=header.workload,
        fingerprint=header.fingerprint,
        because="a test",
        entries=tuple(msgspec.structs.replace(entry, evidence=Evidence()) for entry in one.arm.entries),
    )
    run_dir.save_plan(plan)
    run_dir.keep_shipment(shipment)
    return Cut(run_dir.path, net, traffic, proof, one, replay, plan)


def test_batch_sizes_are_the_traffic_and_parts_are_proven(cut: Cut) -> None:
    [dim] = cut.traffic.dims
    assert (dim.name, dim.min, dim.max, len(dim.places)) == ("scale:0", 1, 8, 2)  # both inputs have the batch
    assert [one.sizes for one in cut.traffic.demand] == [(1,), (2,), (4,), (8,)]
    assert cut.proof.padding is not None
    assert cut.proof.padding.dims[0].in_parts
    assert may_be_cut(usable_padding(cut.proof, cut.traffic), cut.traffic)


def test_the_plan_says_what_is_cut_and_its_replay_was_fast_throughout(cut: Cut) -> None:
    assert cut.policy.record.policy is ShapePolicy.SPLIT
    assert cut.policy.record.splits
    [entry] = [entry for entry in cut.plan.entries if entry.split is not None]
    assert entry.split is not None
    assert entry.split.rows == 2
    assert entry.split.batch.size == 8
    assert cut.replay.seen[cut.policy.arm.id].fast_share == 1.0


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
    fast = compilot.compile(model, cut.folder)
    for rows in range(1, 9):
        same(fast, model, rows)
    assert (fast.stats().fast, fast.stats().fallbacks) == (8, {})
    same(fast, model, 9)  # beyond the proof
    assert fast.stats().fast == 8


def test_its_bundle_cuts_as_well_and_needs_no_model(cut: Cut, tmp_path: Path) -> None:
    packed = pack([cut.folder], tmp_path / "net.cpbundle", PackOptions(), Observer())
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
def test_tune_chooses_a_plan_for_batch_sizes_and_shows_it_at_each(tmp_path: Path) -> None:
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
    fast = compilot.compile(model, plan)
    for rows in range(1, 9):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert fast.stats().fast_share == 1.0
