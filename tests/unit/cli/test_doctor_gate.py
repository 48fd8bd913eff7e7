"""`compilot doctor` as a gate and as a check: what it says when not everything was looked at, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.doctor import checkup
from compilot.doctor.report_files import last_report
from compilot.records import Finding, Shipment

BREAK = Finding(kind="graph-break", where="net.py:3", explanation="a print", advice="remove it", snippet="print(x)")
AGAIN = Finding(kind="recompile", where="net.py:2", explanation="x changed", advice="mark it", what="the size of x")
UNSEEN = "calling the model with all its inputs did not finish: out of memory"
FOLDER = Path("compilot-doctor/net-net")


class FakeDoctor:
    """Stands in for the child processes; the next examination finds what it is told to."""

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        self.unseen: tuple[str, ...] = ()
        self.timing: Callable[[DoctorReport], DoctorReport] = lambda report: report

    def run(self, shipment: Shipment, folder: Path, tell: Any, **more: Any) -> DoctorReport:
        return DoctorReport(
            schema=REPORT_SCHEMA,
            compilot="0",
            created="",
            label="Net",
            target=shipment.target or "",
            findings=self.findings,
            unseen=self.unseen,
        )

    def add_times(self, report: DoctorReport, *args: Any, **more: Any) -> DoctorReport:
        return self.timing(report)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDoctor:
    """Both examinations replaced; the working directory is a fresh one with two target files in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("net.py", "other.py"):
        (tmp_path / name).write_text("def net(): ...\n")
    fake = FakeDoctor()
    monkeypatch.setattr(checkup, "run", fake.run)
    monkeypatch.setattr(checkup, "add_times", fake.add_times)
    return fake


Command = Callable[..., Result]


def test_a_gate_does_not_pass_when_not_everything_was_looked_at(doctor: FakeDoctor, compilot: Command) -> None:
    doctor.unseen = (UNSEEN,)
    result = compilot("doctor", "net.py:net", "-q", "--fail-on", "graph-break")
    assert result.exit_code == 2
    assert f"error: not everything was looked at, so --fail-on cannot pass: {UNSEEN}; fix that" in result.stderr
    assert "nothing to fix" not in result.stdout
    assert compilot("doctor", "net.py:net", "-q").exit_code == 0


def test_a_finding_fails_the_gate_even_so(doctor: FakeDoctor, compilot: Command) -> None:
    doctor.findings, doctor.unseen = (BREAK,), (UNSEEN,)
    result = compilot("doctor", "net.py:net", "-q", "--fail-on", "graph-break", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["report"]["unseen"] == [UNSEEN]
    assert compilot("doctor", "net.py:net", "-q", "--fail-on", "recompile").exit_code == 2


def test_a_recompile_that_is_told_with_its_break_fails_the_gate_for_recompiles(
    doctor: FakeDoctor, compilot: Command
) -> None:
    doctor.findings = (BREAK,)
    assert compilot("doctor", "net.py:net", "-q", "--fail-on", "recompile").exit_code == 0
    doctor.findings = (msgspec.structs.replace(BREAK, recompiles=2),)
    result = compilot("doctor", "net.py:net", "-q", "--fail-on", "recompile")
    assert result.exit_code == 1
    assert "failed: 1 finding of --fail-on (graph-break)." in result.stderr
    assert compilot("doctor", "net.py:net", "-q", "--fail-on", "recompile-limit").exit_code == 0


def test_a_check_that_did_not_see_everything_calls_nothing_gone_and_keeps_the_last_report(
    doctor: FakeDoctor, compilot: Command
) -> None:
    doctor.findings = (BREAK, AGAIN)
    assert compilot("doctor", "net.py:net", "-q").exit_code == 0
    doctor.findings, doctor.unseen = (BREAK,), (UNSEEN,)
    result = compilot("doctor", "net.py:net", "-q", "--fix-check")
    assert result.stdout.startswith("gone: 0\nnot checked: 1\n   recompile  net.py:2")
    assert "keeps the last report: its findings were not all checked" in result.stderr
    doctor.unseen = ()
    result = compilot("doctor", "net.py:net", "-q", "--fix-check")
    assert result.stdout.startswith("gone: 1\n   recompile  net.py:2")
    assert last_report(FOLDER).findings == (BREAK,)


def test_an_interrupted_check_keeps_the_last_report(doctor: FakeDoctor, compilot: Command) -> None:
    def interrupted(report: DoctorReport) -> DoctorReport:
        raise KeyboardInterrupt

    doctor.findings = (BREAK,)
    assert compilot("doctor", "net.py:net", "-q").exit_code == 0
    doctor.findings, doctor.timing = (), interrupted
    assert compilot("doctor", "net.py:net", "-q", "--fix-check").exit_code == 130
    assert last_report(FOLDER).findings == (BREAK,)


def test_another_targets_report_is_no_baseline(doctor: FakeDoctor, compilot: Command) -> None:
    assert compilot("doctor", "net.py:net", "-q").exit_code == 0
    missing = compilot("doctor", "other.py:net", "-q", "--fix-check")
    assert "there is no earlier report in compilot-doctor/other-net" in missing.stderr
    result = compilot("doctor", "other.py:net", "-q", "--fix-check", "--out", str(FOLDER))
    assert result.exit_code == 2
    assert "net.py:net, not about " in result.stderr
