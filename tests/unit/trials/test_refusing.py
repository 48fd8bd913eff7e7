"""Candidates that an index rules out, and what a worker makes of the ranges that eager's worker found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.identity.model import model_fingerprint
from compilot.progress import Observer
from compilot.records import Candidate, IndexFacts, IndexRange, MemoryFormat, Settings, Shapes, State
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.protocol import Inspect
from compilot.trials.refusing import UNDECLARED, refusal
from compilot.trials.steps import trial as steps_of_a_trial
from compilot.trials.steps.state import WorkerState
from compilot.tuning.comparing import try_one
from compilot.workload import Workload

ENGINES = ("inductor", "aoti", "onnxruntime", "openvino", "cudagraphs", "tensorrt", "of-the-user")


def candidate(engine: str, **settings: Any) -> Candidate:
    return Candidate(settings=Settings(engine=engine, **settings), label=engine, rationale="test")


@pytest.mark.parametrize("engine", ENGINES)
def test_no_engine_but_eager_may_have_an_index_that_nobody_can_prove(engine: str) -> None:
    facts = IndexFacts(unproven="the index of 'gather' comes from numbers whose range is not known")
    assert refusal(candidate(engine), facts, dynamic=False) == facts.unproven
    assert refusal(EAGER, facts, dynamic=False) is None
    assert refusal(candidate("eager", memory_format=MemoryFormat.CHANNELS_LAST), facts, dynamic=False) is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("sized", "shapes", "dynamic", "refused"),
    [
        (True, Shapes.DYNAMIC, False, True),
        (True, Shapes.DYNAMIC, True, False),
        (True, Shapes.STATIC, False, False),
        (False, Shapes.DYNAMIC, False, False),
    ],
)
def test_ranges_that_depend_on_sizes_need_declared_ones(
    engine: str, sized: bool, shapes: Shapes, dynamic: bool, refused: bool
) -> None:
    told = refusal(candidate(engine, shapes=shapes), IndexFacts(sized=sized), dynamic=dynamic)
    assert told == (UNDECLARED if refused else None)


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_at_which_an_index_cannot_be_proven_rule_out_free_sizes_only(engine: str) -> None:
    facts = IndexFacts(unproven_sizes="out of range at 'largest'")
    assert refusal(candidate(engine, shapes=Shapes.DYNAMIC), facts, dynamic=True) == facts.unproven_sizes
    assert refusal(candidate(engine), facts, dynamic=True) is None
    assert refusal(candidate("eager", shapes=Shapes.DYNAMIC), facts, dynamic=True) is None


def test_a_refused_candidate_costs_no_process(tmp_path: Path) -> None:
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(), observer=Observer())
    runner.workers.indices = IndexFacts(unproven="no range is known")
    trial = try_one(runner, candidate("inductor"), 1.0)
    assert (trial.state, trial.reason) == (State.INFEASIBLE, "no range is known")
    assert not (tmp_path / "work").exists()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids + 1)


@pytest.fixture
def steps() -> WorkerState:
    steps = WorkerState()
    steps.workload = Workload(Model().eval(), (torch.tensor([[1, 2, 3]]),))
    steps.model_fingerprint = model_fingerprint(steps.workload.model)
    return steps


def test_eagers_worker_finds_the_ranges(steps: WorkerState, tmp_path: Path) -> None:
    inspected = steps_of_a_trial.inspect(steps, Inspect(references=str(tmp_path)))
    assert inspected.diagnosis.indices.ranges == {"args[0]": IndexRange(low=-1, high=8)}


@pytest.mark.parametrize(("engine", "guarded"), [("inductor", True), ("eager", False)])
def test_every_engines_guard_gets_them_but_eagers(steps: WorkerState, engine: str, guarded: bool) -> None:
    steps.candidate = candidate(engine)
    found = {"args[0]": IndexRange(low=-1, high=8)}
    guard = steps_of_a_trial._guard(steps, IndexFacts(ranges=found, at_all_sizes={}))
    assert guard.tensors[0].index == (found["args[0]"] if guarded else None)


def test_a_guard_with_free_sizes_gets_what_holds_at_all_of_them(steps: WorkerState) -> None:
    steps.candidate = candidate("inductor", shapes=Shapes.DYNAMIC)
    wide, narrow = IndexRange(low=-1, high=8), IndexRange(low=0, high=3)
    guard = steps_of_a_trial._guard(steps, IndexFacts(ranges={"args[0]": wide}, at_all_sizes={"args[0]": narrow}))
    assert guard.tensors[0].index == narrow
