"""One block that an engine of files cannot have, through a whole run: the engine gets all others, and it is named.

For two reasons: what it does depends on values, which stops every export; it calls an operator of its own, which has no
form in the engine's files. bench/boundary.py has the first with all such engines at full size, and races the plans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import six_blocks
import torch

from compilot._tree import Call
from compilot.artifacts import journal
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.parts import covered
from compilot.progress import Observer
from compilot.records import Diagnosis, DiagnosisLine, Shapes, State, Trial
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.tuning import budget, pipeline
from compilot.tuning.boundaries import free_breaks
from compilot.tuning.options import TuneOptions
from compilot.tuning.repair import records_of
from compilot.workload.dispatch import ship_target

pytestmark = pytest.mark.slow
TARGETS = Path(six_blocks.__file__)
BUDGET_S = 240.0  # on a slow machine; a run ends when nothing is left to try
BLOCKS = {f"layers.{number}" for number in range(6)}
CULPRIT = "layers.3"


class Run(NamedTuple):
    """A finished run, and the model it was about."""

    folder: Path
    tuned: pipeline.Tuned
    diagnosis: Diagnosis
    made: tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

    def trial_of(self, paths: set[str]) -> Trial:
        """The trial in which the engine had these submodules."""
        own = [t for t in self.tuned.trials if set(covered(t.candidate, self.diagnosis)) == paths]
        return own[0]


@pytest.fixture(scope="module", params=["choosy", "own_operator"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One tune with one engine; nothing is varied, one set of processes confirms."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp(request.param) / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(GuidedSearch, "_variations", lambda *others: iter(()))
        patch.setattr(budget, "CONFIRM_PROCESSES", 1)
        options = TuneOptions(budget_s=BUDGET_S, engines=("onnxruntime",))
        tuned = pipeline.run(ship_target(f"{TARGETS}:{request.param}_wide"), folder, options, Observer())
    lines = journal.read(folder / "journal.jsonl")
    diagnosis = next(line.diagnosis for line in reversed(lines) if isinstance(line, DiagnosisLine))
    return Run(folder, tuned, diagnosis, getattr(six_blocks, f"{request.param}_wide")())


def test_the_engine_cannot_have_the_model_and_gets_all_but_the_block(run: Run) -> None:
    engine = [t for t in run.tuned.trials if t.candidate.settings.engine == "onnxruntime"]
    assert {trial.state for trial in engine} <= {State.INFEASIBLE}
    states = {frozenset(covered(t.candidate, run.diagnosis)): t.state for t in run.tuned.trials if t.candidate.regions}
    assert {state for inside, state in states.items() if CULPRIT in inside} <= {State.INFEASIBLE}
    assert run.trial_of(BLOCKS - {CULPRIT}).state is State.OK


def test_the_block_is_named(run: Run) -> None:
    (record,) = records_of(run.diagnosis, run.tuned.trials)
    assert (record.engine, record.culprits, record.state) == ("onnxruntime", (CULPRIT,), State.INFEASIBLE)
    assert record.found
    assert CULPRIT in run.tuned.verdict.because  # in the plan, or in the reason why eager was kept


def test_what_the_doctor_saw_stop_there_costs_the_plan_nothing(run: Run) -> None:
    stops = [place for place in run.diagnosis.breaks if place.stops_export]
    free = free_breaks(run.trial_of(BLOCKS - {CULPRIT}), run.diagnosis)
    assert {place.where for place in stops} == set(free)
    line = "super().forward(hidden if hidden.abs().sum()"
    numbers = [n for n, text in enumerate(TARGETS.read_text().splitlines(), 1) if line in text]
    depends_on_values = isinstance(run.made[0].get_submodule(CULPRIT), six_blocks.Choosy)  # the operator stops nobody
    assert [Path(where).name for where in free] == [f"{TARGETS.name}:{n}" for n in numbers if depends_on_values]


def test_all_but_the_block_answers_as_eager_does(run: Run) -> None:
    candidate = run.trial_of(BLOCKS - {CULPRIT}).candidate
    model, args, kwargs = run.made
    guard = make_guard(model, Call(args, kwargs), dynamic=(), shapes=Shapes.STATIC, grad=False)
    with torch.no_grad():
        fast = attach(model, candidate, guard, run.folder / "work" / candidate.id)
        torch.testing.assert_close(fast(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-4)
    stats = fast.stats()
    assert {path: (one.fast, one.fallbacks) for path, one in stats.regions.items()} == {
        path: (1, {}) for path in sorted(BLOCKS - {CULPRIT})
    }
