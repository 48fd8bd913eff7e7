"""A report made while other work ran: everything that was found is shown, and no time at all."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doctor_fakes import full_report
from rich.console import Console

from compilot.diagnose import trusted
from compilot.diagnose.report_records import Category, CodeFrame, DoctorReport, Recompile
from compilot.diagnose.untimed import without_times
from compilot.report import doctor_terminal, doctor_times
from compilot.report.doctor_html import doctor_page

A_TIME = re.compile(r"\d (?:s|ms|µs|microseconds)\b")
PLACE = CodeFrame(file="m.py", line=3, function="forward")
AGAIN = Recompile(
    where=PLACE, function=PLACE, category=Category.SHAPE, what="", old="4", new="6", cause="", fix="", compile_s=0.4
)
TIMED = msgspec.structs.replace(full_report(), recompiles=(AGAIN,))


def shown(report: DoctorReport) -> str:
    text = io.StringIO()
    console = Console(file=text, width=100)
    console.print(doctor_terminal.summary(report, root=Path.cwd()))
    for part in doctor_times.times(report):
        console.print(part)
    return text.getvalue()


def page(report: DoctorReport) -> str:
    return doctor_page(report).partition("<body>")[2]


def times_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number in seconds of a JSON document, by the name of its field."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from times_in(part, key)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from times_in(part, name)
    elif name.endswith("_s") and value is not None:
        yield name, value


@pytest.mark.parametrize("show", [shown, page], ids=["terminal", "page"])
def test_no_time_is_shown_that_other_work_made_longer(show: Any) -> None:
    assert A_TIME.search(show(TIMED))
    assert not A_TIME.search(show(without_times(TIMED)))


def test_no_time_is_in_the_json() -> None:
    assert {"eager_call_s", "cost_s", "compile_s", "outside_s", "wall_s"} <= {
        name for name, _ in times_in(msgspec.to_builtins(TIMED))
    }
    assert list(times_in(msgspec.to_builtins(without_times(TIMED)))) == []


def test_what_was_found_stays_in_its_order() -> None:
    report = without_times(TIMED)
    assert [one.kind for one in report.findings] == ["graph-break", "recompile"]
    assert (len(report.breaks), len(report.recompiles), report.breaks[0].per_call) == (2, 1, 2)
    assert "the most costly first" in page(TIMED)
    assert "the most costly first" not in page(report)


def test_one_note_says_how_to_get_the_times() -> None:
    noted = msgspec.structs.replace(TIMED, notes=(trusted.LEFT_OUT, "another note"))
    other, how = without_times(noted).notes
    assert other == "another note"
    assert how.endswith("'compilot doctor models/classifier.py:factory' times them")
    live = without_times(msgspec.structs.replace(TIMED, target=""))
    assert live.notes[-1].endswith("compilot.examine times them")
    assert page(live).count("not timed") == shown(live).count("not timed") == 1
