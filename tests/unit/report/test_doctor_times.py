"""The timed parts in the terminal."""

from __future__ import annotations

from doctor_fakes import full_report
from rich.console import Console

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.report.doctor_times import times


def _printed(report: DoctorReport) -> str:
    console = Console(width=120, record=True, file=None, force_terminal=False)
    with console.capture() as shown:
        for part in times(report):
            console.print(part)
    return shown.get()


def test_every_timed_part_is_shown() -> None:
    text = _printed(full_report())
    assert "Data loading is 70 % of the step; compiling will not help." in text
    assert "Limited by memory: overhead 12 %, memory 58 %, compute 30 %" in text
    assert "inductor freezing: 6.10 ms per call, 58 % of the roof" in text
    assert "9 C++ compiler runs, 1 of them for the header that all models share; 2 graphs" in text
    assert "kept cache would save about 9.60 s (estimate" in text


def test_stages_have_bars_and_the_timeline_is_a_tree() -> None:
    lines = _printed(full_report()).splitlines()
    longest = next(line for line in lines if line.startswith("C++ compile"))
    assert "█" * 30 in longest
    wait = next(line for line in lines if "async compile.wait" in line)
    outer = next(line for line in lines if "fx codegen and compile" in line)
    assert not any("entire frame" in line for line in lines)  # only passes on to its one attempt
    assert wait.index("async") > outer.index("fx codegen")
    assert not any("aot collect metadata" in line for line in lines)  # 2 % of the whole


def test_nothing_measured_prints_nothing() -> None:
    assert times(DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net")) == []
