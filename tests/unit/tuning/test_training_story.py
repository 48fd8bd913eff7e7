"""`tune` of a training, on a runner that runs nothing: curves of finalists, parts, words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.candidates.training import TrainingSearch
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    CompiledWay,
    Decision,
    Diagnosis,
    Goal,
    Kind,
    OptimizerWay,
    Plan,
    Shipment,
    State,
    StepFacts,
    Trial,
    Verdict,
    WorkloadRef,
)
from compilot.testing.runner import FakeRunner, Fate
from compilot.tuning import pipeline
from compilot.tuning.budget import Budget
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions
from compilot.tuning.training import refuse_for_training
from compilot.verdict.step_words import in_words_of

FACTS = StepFacts(
    optimizer="AdamW",
    ways=(OptimizerWay.FOREACH, OptimizerWay.FUSED),
    compilable=True,
    tensors=10,
    shapes=2,
    update_s=0.004,
)
LOOKED = Diagnosis(step=FACTS, training=True, eager_call_s=0.01, cores=2, threads=2)


def fate(candidate: Candidate) -> Fate:
    """One graph is fastest and loses its way; a compiled model and a fused optimizer help."""
    step = candidate.step
    speed = (1.2 if step.optimizer is OptimizerWay.FUSED else 1.0) * (
        1.5 if step.compiled is CompiledWay.MODEL else 1.0
    )
    if step.compiled is CompiledWay.ONE_GRAPH:
        return Fate(speed=3.0, astray="the loss leaves eager's band at step 2 of 50: 8.54, 6.66 would be right")
    others = step.compiled in (CompiledWay.WITH_LOSS, CompiledWay.REGIONS) or candidate.process.threads
    return Fate(speed=0.9) if others else Fate(speed=speed)


class Story:
    """A run and what it left."""

    def __init__(self, folder: Path, diagnosis: Diagnosis = LOOKED, fates: Any = fate) -> None:
        self.run_dir = RunDir.make(folder / "run")
        self.runner = FakeRunner(fates, diagnosis=diagnosis, noise=0.002)
        budget, options, observer = Budget(600.0, clock=self.runner.clock), TuneOptions(budget_s=600.0), Observer()
        with RunJournal(self.run_dir, options, budget, observer) as journal, self.runner as runner:
            shipment = Shipment(sys_path=(), cwd=str(folder), target="x:y")
            self.plan: Plan = pipeline.tune(
                shipment, search=TrainingSearch(), runner=runner, journal=journal, budget=budget
            )
            assert journal.verdict is not None
            self.verdict: Verdict = journal.verdict
            self.trials: dict[str, Trial] = {t.candidate.label: t for t in journal.trials.values()}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("training"))


def test_the_fastest_that_trains_as_eager_does_is_chosen(story: Story) -> None:
    assert story.verdict.decision is Decision.USE
    chosen = story.plan.entries[0].candidate
    assert (chosen.step.compiled, chosen.step.optimizer) == (CompiledWay.MODEL, OptimizerWay.FUSED)
    assert story.plan.workload.kind is Kind.TRAINING


def test_a_finalist_whose_loss_goes_astray_is_wrong_and_named(story: Story) -> None:
    wrong = [trial for trial in story.trials.values() if trial.candidate.step.compiled is CompiledWay.ONE_GRAPH]
    assert State.WRONG in {trial.state for trial in wrong}
    assert "step 2 of 50" in next(trial.reason for trial in wrong if trial.state is State.WRONG)


def test_only_finalists_train_for_many_steps(story: Story) -> None:
    curved = [trial for trial in story.trials.values() if trial.check is not None and trial.check.curve is not None]
    assert 1 <= len(curved) < len(story.trials) - 1
    assert story.plan.entries[0].candidate.label in {trial.candidate.label for trial in curved}


def test_the_verdict_says_what_each_part_brought(story: Story) -> None:
    gains = {one.part: one for one in story.verdict.parts if one.kept}
    assert gains["compiled model"].speedup == pytest.approx(1.5, rel=0.02)
    assert gains["fused optimizer"].speedup == pytest.approx(1.2, rel=0.02)
    assert "by parts: compiled model 1.5" in story.verdict.because


def test_steps_not_calls(story: Story) -> None:
    sentence = story.plan.entries[0].sentence
    assert "first step" in sentence
    assert "pays back after" in sentence
    assert "call" not in sentence.replace("called", "")
    assert in_words_of(Kind.INFERENCE, "first call") == "first call"
    assert in_words_of(Kind.TRAINING, "Calls; 1 call") == "Steps; 1 step"


def test_a_model_that_is_called_has_no_curves(tmp_path: Path) -> None:
    plain = Story(tmp_path, Diagnosis(cores=2, threads=2), lambda candidate: Fate(speed=2.0))
    assert all(trial.check is None or trial.check.curve is None for trial in plain.trials.values())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (TuneOptions(goal=Goal(concurrency=2)), "leave out the concurrency"),
        (TuneOptions(batch_sizes=(1, 2)), "leave out the batch sizes"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: TuneOptions, told: str) -> None:
    with pytest.raises(InputError, match=told):
        refuse_for_training(WorkloadRef(label="x", kind=Kind.TRAINING), options)
    refuse_for_training(WorkloadRef(label="x"), options)
