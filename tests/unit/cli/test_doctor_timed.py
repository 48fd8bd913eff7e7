"""`compilot doctor` and where the time goes: when it is measured, and what is written and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from compilot.diagnose.report_records import REPORT_SCHEMA, CompileTime, DoctorReport, StageTime
from compilot.doctor import checkup
from compilot.records import Finding, Plan, Shipment, State
from compilot.trials.child import Dead

BREAK = Finding(kind="graph-break", where="net.py:3", explanation="a print", advice="remove it", cost_s=1e-3)
PLAIN = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net", findings=(BREAK,), calls=("x",))
TIMED = msgspec.structs.replace(
    PLAIN,
    stages=(StageTime(name="C++ compile", wall_s=3.0), StageTime(name="other", wall_s=1.0)),
    compile_time=CompileTime(total_s=4.0, compiler_runs=2, graphs=1),
)


class FakeDoctor:
    """Stands in for the two child processes."""

    def __init__(self) -> None:
        self.timed_with: list[Plan | None] = []
        self.found = PLAIN

    def run(self, shipment: Shipment, folder: Path, tell: Any, **more: Any) -> DoctorReport:
        return msgspec.structs.replace(self.found, target=shipment.target or "")

    def add_times(
        self, report: DoctorReport, shipment: Shipment, folder: Path, tell: Any, *, plan: Plan | None = None
    ) -> DoctorReport:
        self.timed_with.append(plan)
        return msgspec.structs.replace(report, stages=TIMED.stages, compile_time=TIMED.compile_time)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDoctor:
    """Both examinations replaced; the working directory is a fresh one with a target file in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def net(): ...\n")
    fake = FakeDoctor()
    monkeypatch.setattr(checkup, "run", fake.run)
    monkeypatch.setattr(checkup, "add_times", fake.add_times)
    return fake


def test_time_is_part_of_an_examination_and_of_its_page(
    doctor: FakeDoctor, compilot: Callable[..., Result], tmp_path: Path
) -> None:
    result = compilot("doctor", "net.py:net", "-q", "--out", "seen")
    assert result.exit_code == 0, result.output
    assert "C++ compile" in result.stdout
    assert "2 C++ compiler runs; 1 graph" in result.stdout
    assert "report.html" in result.stdout
    assert "C++ compile" in (tmp_path / "seen" / "report.html").read_text()
    kept = msgspec.json.decode((tmp_path / "seen" / "report.json").read_bytes(), type=DoctorReport)
    assert kept == msgspec.structs.replace(TIMED, target=f"{tmp_path / 'net.py'}:net")


def test_quick_does_not_pay_for_a_compile(doctor: FakeDoctor, compilot: Callable[..., Result]) -> None:
    assert compilot("doctor", "net.py:net", "-q", "--quick").exit_code == 0
    assert doctor.timed_with == []


def test_a_plan_stands_beside_eager(doctor: FakeDoctor, compilot: Callable[..., Result], run_dir: Path) -> None:
    assert compilot("doctor", "net.py:net", "-q", "--plan", str(run_dir)).exit_code == 0
    (plan,) = doctor.timed_with
    assert plan is not None
    assert plan.entries[0].candidate.label == "inductor freezing"


def test_another_models_plan_is_refused(
    doctor: FakeDoctor, compilot: Callable[..., Result], run_dir: Path, small_run: Any
) -> None:
    ours = small_run.plan.fingerprint
    other = msgspec.structs.replace(ours.model, class_name="Bert", parameters_sha256="d" * 64)
    doctor.found = msgspec.structs.replace(PLAIN, fingerprint=msgspec.structs.replace(ours, model=other))
    result = compilot("doctor", "net.py:net", "-q", "--plan", str(run_dir))
    assert result.exit_code == 2
    assert "the plan is not about this model: the model's class changed (Net -> Bert);" in result.stderr
    assert doctor.timed_with == []


def test_a_process_that_dies_while_timing_costs_a_note_and_no_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Dying:
        def ask(self, *args: Any, **fields: Any) -> Any:
            raise Dead("doctor", State.CRASHED, "out of memory")

        def kill(self) -> None: ...

    monkeypatch.setattr(checkup, "_child", lambda folder: Dying())
    shipment = Shipment(sys_path=(), cwd=str(tmp_path), target="net.py:net")
    report = checkup.add_times(PLAIN, shipment, tmp_path)
    assert report.findings == PLAIN.findings
    assert report.notes == ("where the time goes could not be measured: out of memory",)
