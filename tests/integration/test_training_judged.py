"""Real compiled training steps before the judge, and a whole run of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import compilot
from compilot import Training
from compilot.measure import step_reference
from compilot.measure.step_check import check_steps
from compilot.measure.step_seen import see_step
from compilot.records import Candidate, Check, CompiledWay, Kind, OptimizerWay, Region, Settings, StepParts
from compilot.training import make_step
from compilot.trials.steps.training import drawing_as_eager
from compilot.workload.loop import Loop

COMPILED = Settings(engine="inductor", options={"fallback_random": True})


class Words(nn.Module):
    """An embedding and a recurrent layer: one graph for all loses their gradients on this torch."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(self.words(x))[0][:, -1])


class Numbers(nn.Module):
    """Linear layers and dropout: one graph for all is right here."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, 8))
        self.inner, self.drop, self.out = nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 20)

    def forward(self, x: Tensor) -> Tensor:
        rows = F.one_hot(x, 20).to(self.table.dtype) @ self.table
        return self.out(self.drop(F.gelu(self.inner(rows.mean(1)))))


class Blocks(nn.Module):
    """Blocks that are alike, with dropout in each."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, 8))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2)) for _ in range(2)])
        self.out = nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        rows = (F.one_hot(x, 20).to(self.table.dtype) @ self.table).mean(1)
        for block in self.blocks:
            rows = rows + block(rows)
        return self.out(rows)


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch), batch[:, 0])


def batch_of(seed: int) -> Tensor:
    return torch.randint(0, 20, (8, 6), generator=torch.Generator().manual_seed(seed))


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def judged(
    model: nn.Module,
    parts: StepParts,
    folder: Path,
    settings: Settings = COMPILED,
    regions: tuple[Region, ...] = (),
) -> Check:
    load = Training(model, loss, adamw, batch_of, clip_norm=1.0)
    reference = step_reference.make_reference(load, folder)
    given = {"settings": settings, "regions": regions, "clip_norm": 1.0, "strict": True}
    loop = Loop(load, lambda m, own, o: make_step(m, own, o, parts, **given))  # type: ignore[arg-type]
    first = see_step(loop, step_reference.window(load, 0), step_reference.seed_of(load, 0))
    return check_steps(loop, load, folder, reference, first=first)


@pytest.mark.compiles
def test_one_graph_is_refused_where_it_drops_gradients(tmp_path: Path) -> None:
    found = judged(Words(), StepParts(compiled=CompiledWay.ONE_GRAPH), tmp_path)
    assert not found.passed
    assert "words.weight" in found.why
    assert "step 1" in found.why


@pytest.mark.compiles
@pytest.mark.parametrize("way", [CompiledWay.ONE_GRAPH, CompiledWay.WITH_LOSS])
def test_compiled_ways_pass_where_they_are_right_with_dropout(way: CompiledWay, tmp_path: Path) -> None:
    found = judged(Numbers(), StepParts(compiled=way, optimizer=OptimizerWay.FUSED), tmp_path)
    assert found.passed, found.why
    assert found.reference == "float64"


@pytest.mark.compiles
def test_blocks_that_are_compiled_apart_pass_with_dropout(tmp_path: Path) -> None:
    """Their twin draws eager's random numbers in each block."""
    compiled = Settings(engine="inductor")
    own = Candidate(
        settings=compiled,
        regions=(Region(selector="blocks.*", settings=compiled),),
        label="blocks",
        rationale="a test",
        step=StepParts(compiled=CompiledWay.REGIONS),
    )
    twin = drawing_as_eager(own)
    found = judged(Blocks(), twin.step, tmp_path, twin.settings, twin.regions)
    assert found.passed, found.why


@pytest.mark.slow
def test_a_training_is_tuned_from_live_objects_and_its_plan_used(tmp_path: Path) -> None:
    load = Training(Numbers(), loss, adamw, batch_of, accumulate=2, clip_norm=1.0)
    plan = compilot.tune(load, budget="8s", engines="eager", out=tmp_path / "run", progress=False)
    assert plan.workload.kind is Kind.TRAINING
    assert plan.workload.step is not None
    assert plan.workload.step.accumulate == 2
    found = compilot.results(tmp_path / "run")
    assert found.unit == "step"
    assert {row["candidate"] for row in found.rows} > {"eager"}
    assert "train_step" in (tmp_path / "run" / "report.html").read_text()
    model = Numbers()
    step = compilot.train_step(model, loss, adamw(model.parameters()), tmp_path / "run" / "plan.json")
    before = model.inner.weight.clone()
    step(batch_of(0))
    assert torch.equal(before, model.inner.weight)
    step(batch_of(1))
    assert not torch.equal(before, model.inner.weight)
