"""The examination as the parent sees it: a step that fails takes nothing away, and a deadline ends it in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.diagnose import untimed
from compilot.diagnose.report_records import DoctorReport
from compilot.doctor import checkup
from compilot.errors import EnvironmentProblem
from compilot.records import Finding, Shipment, State, WorkloadRef
from compilot.trials.child import Dead
from compilot.trials.protocol import Examine, Examined, ExamineStep, Failed, Opened, Request

BREAK = Finding(kind="graph-break", where="m.py:3", explanation="a print", advice="remove it")
AGAIN = Finding(kind="recompile", where="m.py:2", explanation="x changed", advice="mark it")
SHIPMENT = Shipment(sys_path=(), cwd="/", target="m.py:f")


class Clock:
    """A clock that only the patient moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Patient:
    """A child process that finds a break at once and a recompile in the drive; steps may fail, die or take long."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fails: set[ExamineStep] = set()
        self.dies: set[ExamineStep] = set()
        self.takes_s: dict[ExamineStep, float] = {}
        self.taken: list[ExamineStep] = []
        self.finds: dict[ExamineStep, tuple[Finding, ...]] = {
            ExamineStep.CAPTURE: (BREAK,),
            ExamineStep.DRIVE: (BREAK, AGAIN),
        }
        self.report = DoctorReport(schema=1, compilot="0", created="", label="Net")

    def ask(self, request: Request, expect: type[Any], *, limit_s: float, doing: str) -> Any:
        if not isinstance(request, Examine):
            return Opened(id=1, ref=WorkloadRef(label="Net"))
        step = request.step
        self.taken.append(step)
        self.clock.now += min(self.takes_s.get(step, 0.0), limit_s)
        if self.takes_s.get(step, 0.0) > limit_s:
            raise Dead("doctor", State.TIMED_OUT, f"{doing} took longer than {limit_s:.0f} s and was ended")
        if step in self.dies:
            raise Dead("doctor", State.CRASHED, f"died of SIGSEGV while {doing}")
        if step in self.fails:
            return Failed(id=1, state=State.CRASHED, reason="ValueError: it broke")
        return Examined(id=1, report=self.seen(step))

    def seen(self, step: ExamineStep) -> DoctorReport | None:
        found = self.finds.get(step)
        if found:
            self.report = msgspec.structs.replace(self.report, findings=found)
        return self.report if step is ExamineStep.REPORT else None

    def end(self) -> None: ...

    def kill(self) -> None: ...


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patient:
    clock = Clock()
    patient = Patient(clock)
    monkeypatch.setattr(checkup, "time", clock)
    monkeypatch.setattr(checkup, "_child", lambda folder, env=None: patient)
    return patient


def test_a_whole_examination_leaves_nothing_unseen(patient: Patient, tmp_path: Path) -> None:
    report = checkup.run(SHIPMENT, tmp_path)
    assert (report.findings, report.unseen, report.notes) == ((BREAK, AGAIN), (), ())


def test_a_death_in_the_drive_keeps_the_breaks_and_is_said(patient: Patient, tmp_path: Path) -> None:
    patient.dies = {ExamineStep.DRIVE}
    report = checkup.run(SHIPMENT, tmp_path)
    assert report.findings == (BREAK,)
    (unseen,) = report.unseen
    assert unseen.startswith("calling the model with all its inputs did not finish, so graph breaks and recompiles")
    assert "died of SIGSEGV" in unseen


def test_costs_that_cannot_be_weighed_are_a_note_and_the_drive_goes_on(patient: Patient, tmp_path: Path) -> None:
    patient.fails = {ExamineStep.WEIGH}
    report = checkup.run(SHIPMENT, tmp_path)
    assert (report.findings, report.unseen) == ((BREAK, AGAIN), ())
    (note,) = report.notes
    assert "what the graph breaks cost is not known: the model cannot be run: ValueError: it broke" in note


def test_a_death_while_weighing_keeps_the_breaks_and_leaves_the_drive_unseen(patient: Patient, tmp_path: Path) -> None:
    patient.dies = {ExamineStep.WEIGH}
    report = checkup.run(SHIPMENT, tmp_path)
    assert report.findings == (BREAK,)
    assert len(report.notes) == len(report.unseen) == 1
    assert ExamineStep.DRIVE not in patient.taken


def test_a_drive_that_fails_tells_what_it_saw_until_then(patient: Patient, tmp_path: Path) -> None:
    patient.fails = {ExamineStep.DRIVE}
    report = checkup.run(SHIPMENT, tmp_path)
    assert patient.taken[-1] is ExamineStep.REPORT
    assert len(report.unseen) == 1


def test_a_death_before_anything_was_found_is_an_error(patient: Patient, tmp_path: Path) -> None:
    patient.dies = {ExamineStep.CAPTURE}
    with pytest.raises(EnvironmentProblem, match="the examination ended early: died of SIGSEGV while tracing"):
        checkup.run(SHIPMENT, tmp_path)


def test_beside_other_work_the_deadline_is_for_all_steps_together(patient: Patient, tmp_path: Path) -> None:
    patient.takes_s = {ExamineStep.EAGER: 6.0, ExamineStep.CAPTURE: 6.0, ExamineStep.WEIGH: 6.0, ExamineStep.DRIVE: 6.0}
    with checkup.beside(SHIPMENT, tmp_path, total_s=20.0) as report:
        found = report()
    assert found.findings == (BREAK,)
    assert found.unseen[0].endswith("calling the model with all its inputs took longer than 2 s and was ended")
    assert found.notes == (untimed.note(""),)
    assert patient.clock.now == 120.0


def test_costs_are_known_alone_and_left_out_where_other_work_ran(patient: Patient, tmp_path: Path) -> None:
    priced = msgspec.structs.replace(BREAK, cost_s=0.36)
    patient.report = msgspec.structs.replace(patient.report, eager_call_s=0.36)
    patient.finds = {ExamineStep.CAPTURE: (priced,)}
    alone = checkup.run(SHIPMENT, tmp_path)
    assert (alone.eager_call_s, alone.findings, alone.notes) == (0.36, (priced,), ())
    with checkup.beside(SHIPMENT, tmp_path, total_s=20.0) as report:
        found = report()
    assert (found.eager_call_s, found.findings) == (None, (BREAK,))
