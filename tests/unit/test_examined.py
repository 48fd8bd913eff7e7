"""What a tuning run takes over from the doctor: its findings first, none of them twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot import checkup, pipeline
from compilot.diagnose.report_records import DoctorReport
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import Diagnosis, Finding

TRAIN = Finding(kind="train-mode", where="", explanation="in train mode", advice="call eval")
BREAK = Finding(kind="graph-break", where="m.py:3", explanation="an if on data", advice="use torch.where")
REPORT = DoctorReport(schema=1, compilot="0", created="", label="Net", findings=(BREAK, TRAIN))


class Options:
    budget_s = 1e6


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def examined(folder: Path, observer: Observer) -> Any:
    diagnosis = Diagnosis(findings=(TRAIN,))
    return pipeline.examined(diagnosis, None, folder, Options(), observer)  # type: ignore[arg-type]


def test_the_doctors_findings_come_first_and_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "run", lambda shipment, folder, **options: REPORT)
    assert examined(tmp_path, Heard()).findings == (BREAK, TRAIN)
    assert checkup.last_report(tmp_path / "doctor") == REPORT


def test_a_doctor_that_fails_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> DoctorReport:
        raise EnvironmentProblem("it died.")

    monkeypatch.setattr(checkup, "run", fails)
    observer = Heard()
    assert examined(tmp_path, observer).findings == (TRAIN,)
    assert observer.notes == ["the doctor could not look at the model: it died."]
