"""The report of a run before it is drawn. In: a run directory. Out: Page: the first screen and the sections.

Every figure comes from the rows that the terminal and trials.csv have (data.py), so they all agree. A section that the
run has no figures for is left out: one more kind of figures is one more function in SECTIONS. Covered: runs of one
candidate, of many, of failures only; runs that were interrupted; comparisons. Not covered: HTML (page_html.py) and
Markdown (page_markdown.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.errors import PlanError
from compilot.records import Plan
from compilot.report import page_modules, page_pictures, page_tables
from compilot.report.course import course
from compilot.report.data import read_run
from compilot.report.doctor_words import PAGE_FILE, REPORT_FILE
from compilot.report.page_head import head_of
from compilot.report.page_records import Page, Section, View

SECTIONS: tuple[Callable[[View], Section | None], ...] = (
    page_pictures.candidates,
    page_pictures.search,
    page_pictures.intervals,
    page_pictures.calls,
    page_pictures.starts,
    page_pictures.front,
    page_pictures.payback,
    page_modules.modules,
    page_tables.findings,
    page_tables.correctness,
    page_tables.environment,
    page_tables.again,
)


def page_of(run_dir: Path) -> Page:
    """The report of the run in a directory; raises RunDirError where there is none."""
    view = _view(run_dir)
    sections = (make(view) for make in SECTIONS)
    return Page(run_dir, view.data.header.compilot, head_of(view), tuple(one for one in sections if one is not None))


def _view(run_dir: Path) -> View:
    directory = RunDir(run_dir)
    data = read_run(run_dir)
    page = directory.doctor / PAGE_FILE
    return View(
        data=data,
        plan=_plan(directory),
        course=course(directory.lines()),
        examined=_examined(directory.doctor / REPORT_FILE),
        doctor_page=f"{directory.doctor.name}/{PAGE_FILE}" if page.exists() else "",
    )


def _plan(directory: RunDir) -> Plan | None:
    """The run's plan, to look at; a damaged one is none: the journal has the figures."""
    try:
        return directory.read_plan()
    except PlanError:
        return None


def _examined(path: Path) -> DoctorReport | None:
    """The run's own examination; one that is damaged or of another version is left out."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=DoctorReport)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == REPORT_SCHEMA else None
