"""One block of twelve that a compiler gets wrong, through a whole run: a correct plan without it, and its name.

The compiler is a registered torch.compile backend that needs no C++ compiler. The others of their kind are in
bench/boundary.py: the seeded miscompile, a block that cannot be exported, five seeds of each.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import compilot
from compilot.artifacts import journal
from compilot.candidates.parts import covered
from compilot.errors import UnprovenSpeedWarning
from compilot.progress import Observer
from compilot.records import Decision, Diagnosis, DiagnosisLine, State
from compilot.tuning import budget, pipeline
from compilot.tuning.options import TuneOptions
from compilot.workload.dispatch import ship_target

FAULTS = Path(__file__).parents[2] / "bench" / "boundary_faults.py"
BUDGET_S = 240.0  # on a slow machine; a run ends when nothing is left to try
BLOCKS = {f"layers.{number}" for number in range(12)}


def imported(path: Path) -> Any:
    """A file as a module that can be found by its name, as dynamo wants it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Run:
    """A finished run, and what the faulty model is like."""

    def __init__(self, faults: Any, tuned: pipeline.Tuned) -> None:
        self.faults = faults
        self.tuned = tuned
        self.culprit: str = faults.culprit_of(1)

    @property
    def diagnosis(self) -> Diagnosis:
        lines = journal.read(self.tuned.run_dir / "journal.jsonl")
        return next(line.diagnosis for line in lines if isinstance(line, DiagnosisLine))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One tune with one engine: no doctor, no C++ compiler, one set of processes to confirm."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOUNDARY_WIDTH", "128")
        patch.setenv("BOUNDARY_ROWS", "128")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr("compilot.engines.space.can_keep_memory", lambda: False)  # one variation less
        patch.setattr(pipeline, "PREPARE_FROM_S", 2 * BUDGET_S)
        patch.setattr(budget, "CONFIRM_PROCESSES", 1)
        faults = imported(FAULTS)
        options = TuneOptions(budget_s=BUDGET_S, engines=(f"dynamo:{faults.CHEAP}",))
        folder = tmp_path_factory.mktemp("repaired") / "run"
        return Run(faults, pipeline.run(ship_target(f"{FAULTS}:cheap_1"), folder, options, Observer()))


@pytest.mark.measures
@pytest.mark.slow
def test_the_block_is_found_and_all_others_have_the_engine(run: Run) -> None:
    states = {frozenset(covered(t.candidate, run.diagnosis)): t.state for t in run.tuned.trials if t.candidate.regions}
    assert states[frozenset(BLOCKS)] is State.WRONG
    assert states[frozenset(BLOCKS - {run.culprit})] is State.OK
    assert {state for inside, state in states.items() if run.culprit in inside} == {State.WRONG}
    assert {state for inside, state in states.items() if run.culprit not in inside} == {State.OK}


@pytest.mark.measures
@pytest.mark.slow
def test_the_plan_leaves_it_out_and_says_so(run: Run) -> None:
    verdict, plan = run.tuned.verdict, run.tuned.plan
    assert verdict.decision is Decision.USE, verdict.because
    (blamed,) = verdict.repairs
    assert (blamed.culprits, blamed.state, blamed.found) == ((run.culprit,), State.WRONG, True)
    sentence = f"{run.culprit} stays in eager: with it dynamo:{run.faults.CHEAP} gave wrong answers"
    (entry,) = plan.entries
    assert run.culprit not in covered(entry.candidate, run.diagnosis)
    assert sentence in plan.because
    assert any(sentence in caveat for caveat in entry.caveats)


@pytest.mark.measures
@pytest.mark.slow
def test_the_plan_answers_as_eager_does(run: Run) -> None:
    importlib.import_module("torch._dynamo")
    run.faults.register()
    model, inputs = run.faults.cheap_1()
    with torch.no_grad():
        with pytest.warns(UnprovenSpeedWarning, match=r"its version was not recorded|torch threads"):
            fast = compilot.compile(model, run.tuned.run_dir, strict=True)
        torch.testing.assert_close(fast(*inputs), model(*inputs))
        wrong = torch.compile(model, backend=run.faults.CHEAP)
        assert not torch.allclose(wrong(*inputs), model(*inputs), atol=1e-3)  # which the engine alone does not
    assert fast.stats().fast == 1
    assert all(not region.fallbacks for region in fast.stats().regions.values())
