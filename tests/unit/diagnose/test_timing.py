"""The timed half of a report: every part, and what happens when one cannot be measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from compilot.diagnose import trusted
from compilot.diagnose.report_records import REPORT_SCHEMA, CompileTime, DoctorReport, Saving, StageTime
from compilot.diagnose.timing import machine_peaks, stages, times
from compilot.diagnose.timing.machine_peaks import Peaks
from compilot.diagnose.timing.stages import Compiled
from compilot.records import Finding
from compilot.workload import Workload

PEAKS = Peaks(flops_per_s=100e9, bandwidth_bytes_per_s=20e9, dtype="float32", threads=2)
SLOW = Compiled(
    CompileTime(
        total_s=40.0, compiler_runs=7, savings=(Saving(what="kept cache", saves_s=30.0, because="estimate: all of it"),)
    ),
    (StageTime(name="C++ compile", wall_s=36.0), StageTime(name="other", wall_s=4.0)),
)
BREAK = Finding(kind="graph-break", where="a.py:3", explanation="print", advice="remove it", cost_s=1.0)
EMPTY = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net", findings=(BREAK,))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The slow measurements replaced."""
    monkeypatch.setattr(machine_peaks, "machine_peaks", lambda dtype: PEAKS)
    monkeypatch.setattr(stages, "measure_compile", lambda workload, call, workspace: SLOW)
    return monkeypatch


def _workload(**more: object) -> Workload:
    return Workload(nn.Linear(8, 8), (torch.zeros(4, 8),), **more)  # type: ignore[arg-type]


def _timed(workload: Workload, folder: Path) -> DoctorReport:
    return times.add_times(EMPTY, workload, workload.call, folder)


def test_every_part_is_filled_in_and_findings_are_ranked(measured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = _timed(_workload(loader=[1, 2, 3]), tmp_path)
    assert report.bound is not None
    assert report.bound.limited_by == "overhead"
    assert report.roofline is not None
    assert report.input_pipeline is not None
    assert report.compile_time is not None
    assert report.notes == ()
    assert report.findings[0] == BREAK  # the only one that costs a second per call
    kinds = {finding.kind: finding for finding in report.findings}
    assert "40 s, 36 s of it C++ compile (7 compiler runs)" in kinds["long-compile"].explanation
    assert kinds["long-compile"].advice == "compile less: kept cache would save about 30 s"


def test_what_cannot_be_measured_becomes_a_note(measured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*args: object) -> Compiled:
        raise RuntimeError("no C++ compiler")

    measured.setattr(stages, "measure_compile", fails)
    report = _timed(_workload(), tmp_path)
    assert report.bound is not None
    assert report.compile_time is None
    assert report.notes == ("compile time: could not be measured: RuntimeError: no C++ compiler",)


def test_a_roof_measured_on_a_busy_machine_is_left_out(measured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    busy = Peaks(flops_per_s=1e9, bandwidth_bytes_per_s=1e9, dtype="float32", threads=2, busy=True)
    measured.setattr(machine_peaks, "machine_peaks", lambda dtype: busy)
    report = _timed(_workload(), tmp_path)
    assert (report.bound, report.roofline) == (None, None)
    assert report.notes == (times.BUSY,)
    assert not [one.kind for one in report.findings if one.kind.endswith(("-bound", "-roof"))]


def test_times_that_cannot_be_trusted_are_left_out_and_said_once(measured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compiles(*args: object) -> Compiled:
        raise trusted.Untrusted(trusted.LEFT_OUT)

    measured.setattr(stages, "measure_compile", compiles)
    measured.setattr(trusted.Stopwatch, "starved", True)
    report = _timed(_workload(), tmp_path)
    assert (report.bound, report.roofline, report.eager_call_s) == (None, None, None)
    assert (report.compile_time, report.stages) == (None, ())
    assert report.notes == (trusted.LEFT_OUT,)


def test_the_peak_is_that_of_the_dtype_most_weights_have(measured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[torch.dtype] = []
    measured.setattr(machine_peaks, "machine_peaks", lambda dtype: asked.append(dtype) or PEAKS)
    model = nn.Sequential(nn.Linear(8, 8).bfloat16(), nn.Linear(8, 2).bfloat16())
    workload = Workload(model, (torch.zeros(4, 8, dtype=torch.bfloat16),))
    times.add_times(EMPTY, workload, workload.call, tmp_path)
    assert asked == [torch.bfloat16]
