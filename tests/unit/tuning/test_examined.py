"""What a tuning run takes over from the doctor: its findings first, none of them twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.diagnose.report_records import Category, CodeFrame, DoctorReport, GraphBreak, Recompile
from compilot.doctor.report_files import last_report
from compilot.progress import Observer
from compilot.records import Diagnosis, Finding
from compilot.tuning import journal, pipeline

TRAIN = Finding(kind="train-mode", where="", explanation="in train mode", advice="call eval")
BREAK = Finding(kind="graph-break", where="m.py:3", explanation="an if on data", advice="use torch.where")
REPORT = DoctorReport(schema=1, compilot="0", created="", label="Net", findings=(BREAK, TRAIN))


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def examined(seen: DoctorReport | str | None, folder: Path, observer: Observer) -> Any:
    return journal.examined(Diagnosis(findings=(TRAIN,)), seen, RunDir(folder), observer)


def test_the_doctors_findings_come_first_and_none_twice(tmp_path: Path) -> None:
    assert examined(REPORT, tmp_path, Heard()).findings == (BREAK, TRAIN)
    assert last_report(tmp_path / "doctor") == REPORT


def test_the_page_of_a_run_has_eagers_time_from_the_run_itself(tmp_path: Path) -> None:
    diagnosis = Diagnosis(findings=(TRAIN,), eager_call_s=0.0087)
    journal.examined(diagnosis, REPORT, RunDir(tmp_path), Heard())
    assert last_report(tmp_path / "doctor").eager_call_s == 0.0087
    assert "8.70 ms" in (tmp_path / "doctor" / "report.html").read_text()
    disturbed = msgspec.structs.replace(REPORT, eager_call_s=0.36)
    journal.examined(Diagnosis(findings=(TRAIN,)), disturbed, RunDir(tmp_path), Heard())
    assert last_report(tmp_path / "doctor").eager_call_s is None
    assert "eager call" not in (tmp_path / "doctor" / "report.html").read_text()


def test_what_stops_an_export_and_changing_sizes_reach_the_search(tmp_path: Path) -> None:
    place = CodeFrame(file="m.py", line=3, function="forward", source="if x.item() > 5:")
    stops = GraphBreak(where=place, category=Category.SCALAR_READ, cause="", fix="")
    harmless = msgspec.structs.replace(stops, category=Category.PRINT)
    again = Recompile(
        where=place, function=place, category=Category.SHAPE, what="", old="4", new="6", cause="", fix="", dim=0
    )
    declared = msgspec.structs.replace(again, declared=True)
    report = msgspec.structs.replace(REPORT, breaks=(stops, harmless), recompiles=(again, declared))
    diagnosis = examined(report, tmp_path, Heard())
    assert (diagnosis.graph_breaks, diagnosis.export_stops, diagnosis.size_recompiles) == (2, 1, 1)


def test_a_doctor_that_fails_does_not_stop_the_run(tmp_path: Path) -> None:
    observer = Heard()
    assert examined("it died.", tmp_path, observer).findings == (TRAIN,)
    assert observer.notes == ["the doctor could not look at the model: it died."]


def test_what_the_doctor_did_not_see_is_told(tmp_path: Path) -> None:
    observer = Heard()
    part = msgspec.structs.replace(REPORT, unseen=("the drive was cut short",))
    assert examined(part, tmp_path, observer).findings == (BREAK, TRAIN)
    assert observer.notes == ["the doctor did not see everything: the drive was cut short"]


def test_two_precisions_that_nobody_serves_are_two_findings(tmp_path: Path) -> None:
    told = [
        Finding(kind="precision", where="", explanation=f"no engine here can run the model in {name}", advice="")
        for name in ("bf16", "fp16", "int8-dynamic")
    ]
    kept = journal.examined(Diagnosis(findings=tuple(told)), REPORT, RunDir(tmp_path), Heard()).findings
    assert kept == (BREAK, TRAIN, *told)


def test_the_doctor_gets_a_share_of_the_budget_and_never_more_than_a_minute() -> None:
    assert [pipeline.doctor_s(budget) for budget in (60.0, 90.0, 300.0, 3600.0)] == [15.0, 18.0, 60.0, 60.0]


def test_a_short_run_goes_without_the_doctor(tmp_path: Path) -> None:
    assert examined(None, tmp_path, Heard()).findings == (TRAIN,)
    assert not (tmp_path / "doctor").exists()
