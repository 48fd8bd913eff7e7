"""A forgotten `model.eval()`: said once while the run goes on, and once in the result. A runner that runs nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from stories import told
from torch import nn

from compilot.diagnose.examination import Examination
from compilot.diagnose.model import inspection
from compilot.measure.correctness import OTHER_RANDOM
from compilot.progress import Observer
from compilot.records import Diagnosis, Reference, State
from compilot.report.data import read_run
from compilot.report.terminal import summary
from compilot.testing.runner import Fate
from compilot.workload import Workload

MODEL = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
RANDOM = Reference(kind="eager", cases=(), stochastic=True, seeded=True)
FATES = {
    "kept": {"one": Fate(speed=0.5), "two": Fate(state=State.WRONG, reason=f"max abs error 1{OTHER_RANDOM}")},
    "used": {"one": Fate(speed=2.0)},
    "none": {},
}


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def workload(training: bool) -> Workload:
    return Workload(MODEL.train(training), torch.ones(2, 4))


def run(folder: Path, fates: dict[str, Any], training: bool) -> tuple[str, str]:
    """What a run says while it goes on, and what it prints in the end."""
    load, heard = workload(training), Heard()
    findings = (*inspection.model_findings(load, None), *inspection.random_findings(RANDOM))
    story = told(folder, fates, diagnosis=Diagnosis(findings=findings, training=training), observer=heard)
    console = Console(file=io.StringIO(), width=1000)
    console.print(summary(read_run(story.run_dir.path), story.plan))
    return "\n".join([*load.notes, *heard.notes]), console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("outcome", FATES)
def test_it_is_said_once_on_the_way_and_once_in_the_end(tmp_path: Path, outcome: str) -> None:
    on_the_way, result = run(tmp_path, FATES[outcome], training=True)
    assert on_the_way.count("eval()") == 1
    assert result.count("eval()") == 1
    in_verdict = "most engines cannot run; call model.eval() first"
    assert (in_verdict in result) is (outcome != "used")
    assert ("What matters most about this model\n1. the model is in train mode" in result) is (outcome == "used")


def test_nothing_is_said_of_a_model_in_eval_mode(tmp_path: Path) -> None:
    assert not [text for text in run(tmp_path, FATES["kept"], training=False) if "eval()" in text]


def test_the_other_findings_stay(tmp_path: Path) -> None:
    _, result = run(tmp_path, FATES["kept"], training=True)
    assert "1. the model draws random numbers" in result


def test_a_verdict_that_says_so_already_does_not_say_it_again(tmp_path: Path) -> None:
    diagnosis = Diagnosis(training=True, unjudgeable="two eager runs differ; call model.eval(), then tune again")
    assert told(tmp_path, {}, diagnosis=diagnosis).plan.because.count("eval()") == 1


def test_the_doctor_says_it_once() -> None:
    examination = Examination(workload(training=True))
    examination.eager_call_s = 1.0
    report = examination.report(None)
    said = [*report.notes, *(f"{one.explanation} {one.advice}" for one in report.findings)]
    assert sum("eval()" in text for text in said) == 1
