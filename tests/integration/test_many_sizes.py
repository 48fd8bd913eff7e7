"""Plans for many sizes with real processes: programs of several sizes, padding, a replay, the plan and its bundle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from policy_runs import PolicyRun, all_sizes, run_policy

import compilot
from compilot.api.tracing import requests_of
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import (
    Decision,
    Plan,
    ProcessSamples,
    ReplayLine,
    ShapeCosts,
    Shapes,
    State,
    TrafficLine,
)
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import RaceRules, ReplayRules
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target
from compilot.workload.target import load_target

ENGINE = "openvino"
EXAMPLE = Path(__file__).parents[2] / "examples" / "sizes.py"
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

class Leaking(Net):
    def forward(self, x):
        return super().forward(x).softmax(0)

class Picture(nn.Module):
    def forward(self, x):
        return torch.relu(x).mean((1, 2)) + x.amax((1, 2))

def picture():
    torch.manual_seed(0)
    return Picture().eval(), (torch.randn(1, 4, 4),)

def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 6),)

def leaking():
    torch.manual_seed(0)
    return Leaking().eval(), (torch.randn(4, 6),)
"""
CALLS = [{"x:0": size} for size in (2, 9, 2, 5, 9, 9, 2, 7) * 6]
DYNAMIC = all_sizes(ENGINE)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "net.py").write_text(NET)
    return folder / "net.py"


def costs() -> ShapeCosts:
    """Made up: programs for all sizes are slow, so that there are buckets."""
    from compilot.records import CostPoint, ProgramCost

    def cost(times: float) -> ProgramCost:
        return ProgramCost(points=tuple(CostPoint(sizes=(n,), call_s=times * n) for n in (2, 5, 9)))

    return ShapeCosts(eager=cost(10.0), static=cost(1.0), dynamic=cost(3.0), may_pad=True)


@pytest.fixture(scope="module")
def served(net: Path) -> PolicyRun:
    pytest.importorskip(ENGINE)
    requests = requests_of(CALLS, 32)
    shipment = requests.on(ship_target(f"{net}:factory"), later=True)
    return run_policy(net.parent / "run", shipment, requests, ENGINE, costs(), largest=9, replayed=32)


def test_the_trace_declares_what_varies_and_padding_is_proven(served: PolicyRun) -> None:
    assert served.traffic.requests == tuple((call.sizes["x:0"],) for call in requests_of(CALLS, 32).calls)
    [dim] = served.traffic.dims
    assert (dim.name, dim.min, dim.max) == ("x:0", 2, 9)  # the example's 4 is in between
    assert [(one.sizes, one.count) for one in served.traffic.demand] == [((2,), 18), ((5,), 6), ((7,), 6), ((9,), 18)]
    assert served.proof.ok
    assert served.dynamic.state is State.OK, served.dynamic.reason


def test_programs_for_one_size_passed_the_gate_at_their_own_size(served: PolicyRun) -> None:
    sized = [entry for entry in served.plan.entries if entry.candidate.sizes]
    assert sized
    assert all(entry.candidate.settings.shapes is Shapes.STATIC for entry in sized)
    assert all(entry.padding is not None for entry in sized)
    assert served.policy.record.policy is not None
    assert served.policy.record.start_s > 0


def test_the_replay_has_the_same_requests_in_every_arm_and_all_are_fast(served: PolicyRun) -> None:
    samples: ProcessSamples = served.replay.samples
    assert len(samples.rounds) == 32
    assert {len(row) for row in samples.rounds} == {3}  # eager twice, the plan
    assert all(second > 0 for row in samples.rounds for second in row)
    assert served.replay.seen[served.policy.arm.id].fast_share == 1.0
    assert served.replay.seen[served.policy.arm.id].recompiles == 0
    assert served.replay.seen[EAGER.id].fast_share is None


def model_of(net: Path) -> torch.nn.Module:
    return load_target(f"{net}:factory").model


def assert_eagers_answers(fast: torch.nn.Module, model: torch.nn.Module) -> None:
    for rows in (2, 3, 4, 5, 6, 7, 8, 9):  # the trace has some of them
        x = torch.randn(rows, 6)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


def test_the_plan_serves_every_declared_size_fast(served: PolicyRun, net: Path) -> None:
    model = model_of(net)
    fast = compilot.compile(model, served.folder)
    assert_eagers_answers(fast, model)
    assert fast.stats().fast_share == 1.0
    with torch.no_grad():
        torch.testing.assert_close(fast(torch.ones(20, 6)), model(torch.ones(20, 6)))  # beyond the range: eager
    assert fast.stats().fast == 8


def test_its_bundle_has_every_entry_and_needs_no_model(served: PolicyRun, net: Path, tmp_path: Path) -> None:
    packed = pack([served.folder], tmp_path / "net.cpbundle", PackOptions(), Observer())
    assert len(packed.manifest.entries) == len(served.plan.entries)
    fast = compilot.load(packed.path)
    assert_eagers_answers(fast, model_of(net))
    assert fast.stats().fast_share == 1.0


def test_a_model_that_leaks_is_refused_with_output_and_size(net: Path, tmp_path: Path) -> None:
    shipment = requests_of(CALLS, 8).on(ship_target(f"{net}:leaking"), later=True)
    with LocalRunner(RunDir.make(tmp_path / "leak"), limits=Limits(), observer=Observer()) as runner:
        runner.open(shipment)
        proof = runner.prove_padding()
    assert proof.padding is None
    [leak] = proof.refused
    assert leak.output == "output"
    assert leak.size is not None
    assert leak.inputs == ("x dimension 0",)


def test_square_images_are_one_size_and_others_have_the_program_for_all_sizes(net: Path, tmp_path: Path) -> None:
    pytest.importorskip(ENGINE)
    sides = (2, 9, 9, 5, 3, 4, 6)  # more than programs: one for all sizes is behind them
    requests = requests_of([{"x:1": side, "x:2": side} for side in sides * 6], 16)
    shipment = requests.on(ship_target(f"{net}:picture"), later=True)
    unpadded = msgspec.structs.replace(costs(), may_pad=False)
    found = run_policy(tmp_path / "run", shipment, requests, ENGINE, unpadded, largest=9, replayed=16)
    assert [dim.label for dim in found.traffic.dims] == ["x:1 = x:2"]
    own = {entry.name: entry.candidate.sizes for entry in found.plan.entries}
    assert own["9"] == {"x:1": 9, "x:2": 9}
    assert found.replay.seen[found.policy.arm.id].fast_share == 1.0
    model = load_target(f"{net}:picture").model
    fast = compilot.compile(model, found.folder)
    for height, width in [(9, 9), (9, 5), (3, 8)]:  # the last two have no program of their own
        x = torch.randn(1, height, width)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert {name: stats.fast for name, stats in fast.stats().entries.items() if stats.fast} == {"9": 1, "dynamic": 2}


def test_eager_is_raced_at_the_sizes_that_are_asked_for(net: Path, tmp_path: Path) -> None:
    shipment = requests_of(CALLS, 8).on(ship_target(f"{net}:factory"), later=True)
    with LocalRunner(RunDir.make(tmp_path / "sizes"), limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        runner.open(shipment)
        runner.inspect()
        try_eager(runner, 60.0)
        race = runner.race([], RaceRules((2,), sizes={"x:0": 7}))
    assert race.arms[0] == EAGER.id


def test_programs_answer_requests_of_changing_sizes_and_are_raced_at_one_size_again(net: Path, tmp_path: Path) -> None:
    pytest.importorskip(ENGINE)
    shipment = requests_of(CALLS, 16).on(ship_target(f"{net}:factory"), later=True)
    with LocalRunner(RunDir.make(tmp_path / "changing"), limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        runner.open(shipment)
        runner.inspect()
        try_eager(runner, 60.0)
        trial = try_one(runner, DYNAMIC, 120.0)
        samples = runner.over_requests([trial], ReplayRules(12))
        race = runner.race([trial], RaceRules((2,), sizes={"x:0": 7}))
    assert len(samples.rounds) == 12
    assert all(len(row) == 2 and min(row) > 0 for row in samples.rounds)
    assert race.arms[-1] == trial.candidate.id


FOLDED = """
import torch
from torch import nn

class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        weight = self.weight
        for _ in range(200):  # of constants alone: an engine does it once, when it is built, and eager in every call
            weight = torch.tanh(weight) + weight * 0.5
        return x @ weight if x.shape[0] > 16 else x @ weight + 1.0  # so no program serves both sizes

def factory():
    torch.manual_seed(0)
    return Folded().eval(), (torch.randn(4, 8),)
"""


@pytest.mark.slow
@pytest.mark.measures
def test_tune_over_a_trace_gives_a_plan_with_a_program_for_each_size(
    tmp_path: Path, as_measured: Callable[[Plan], object]
) -> None:
    """However fast the machine is, hundreds of operators in eager are slower than none, at both sizes."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "folded.py").write_text(FOLDED)
    target = f"{tmp_path / 'folded.py'}:factory"
    trace = [{"x:0": size} for size in (4, 64, 64, 4, 4, 64) * 10]
    plan = compilot.tune(target, trace=trace, engines="onnxruntime", budget="5m", out=tmp_path / "run", progress=False)
    assert {entry.name for entry in plan.entries} == {"4", "64"}, plan.because
    assert all(entry.candidate.settings.shapes is Shapes.STATIC and entry.padding is None for entry in plan.entries)
    model = load_target(target).model
    as_measured(plan)
    fast = compilot.compile(model, plan)
    for rows in (4, 64):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert fast.stats().fast_share == 1.0


@pytest.mark.slow
def test_the_example_records_tunes_over_its_trace_and_answers_as_eager_does(tmp_path: Path) -> None:
    pytest.importorskip(ENGINE)
    command = [sys.executable, str(EXAMPLE), "--budget", "20s", "--engines", ENGINE, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "answers are eager's" in done.stdout
    assert "eager: baseline, 0 programs" in done.stdout
    assert "ids:1 varies in the trace and is not declared; its range there" in " ".join(done.stderr.split())
    lines = RunDir(tmp_path / "run").lines()
    [traffic] = [line for line in lines if isinstance(line, TrafficLine)]
    assert [engine.engine for engine in traffic.engines] == [ENGINE]
    assert traffic.proof.ok
    replay, *again = [line.replay for line in lines if isinstance(line, ReplayLine)]
    assert replay.calls == 300
    assert [one.race.purpose for one in again] in ([], ["confirm"])
    results = compilot.results(tmp_path / "run")
    assert results.sizes is not None
    assert results.verdict is not None
    assert results.plan is not None
    assert (results.verdict.decision is Decision.USE) == bool(results.plan.entries)
    assert results.plan.workload.padding == {"ids": 0}
    assert "The trace" in (tmp_path / "run" / "report.html").read_text()
