"""What a tuning run takes over from the doctor: its findings first, none of them twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compilot import checkup, pipeline
from compilot.diagnose.report_records import DoctorReport
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import Diagnosis, Finding

TRAIN = Finding(kind="train-mode", where="", explanation="in train mode", advice="call eval")
BREAK = Finding(kind="graph-break", where="m.py:3", explanation="an if on data", advice="use torch.where")
REPORT = DoctorReport(schema=1, compilot="0", created="", label="Net", findings=(BREAK, TRAIN))


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def examined(seen: pipeline.Seen, folder: Path, observer: Observer) -> Any:
    return pipeline.examined(Diagnosis(findings=(TRAIN,)), seen, folder, observer)


def test_the_doctors_findings_come_first_and_none_twice(tmp_path: Path) -> None:
    assert examined(REPORT, tmp_path, Heard()).findings == (BREAK, TRAIN)
    assert checkup.last_report(tmp_path / "doctor") == REPORT


def test_a_doctor_that_fails_does_not_stop_the_run(tmp_path: Path) -> None:
    def fails() -> DoctorReport:
        raise EnvironmentProblem("it died.")

    observer = Heard()
    assert examined(pipeline.told(fails), tmp_path, observer).findings == (TRAIN,)
    assert observer.notes == ["the doctor could not look at the model: it died."]


def test_a_short_run_goes_without_the_doctor(tmp_path: Path) -> None:
    assert examined(None, tmp_path, Heard()).findings == (TRAIN,)
    assert not (tmp_path / "doctor").exists()
