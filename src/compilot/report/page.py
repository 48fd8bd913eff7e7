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
from compilot.records import Kind, Plan
from compilot.report import page_batches, page_modules, page_pictures, page_sizes, page_tables, page_training
from compilot.report.course import course
from compilot.report.data import read_run
from compilot.report.doctor_words import PAGE_FILE, REPORT_FILE
from compilot.report.page_head import head_of
from compilot.report.page_records import Page, Section, View

SECTIONS: tuple[Callable[[View], Section | None], ...] = (
    page_sizes.sizes,
    page_pictures.candidates,
    page_pictures.search,
    page_pictures.intervals,
    page_pictures.calls,
    page_pictures.starts,
    page_pictures.front,
    page_pictures.payback,
    page_training.parts,
    page_training.losses,
    page_batches.batches,
    page_modules.modules,
    page_tables.findings,
    page_tables.correctness,
    page_tables.environment,
    page_tables.again,
)


def page_of(run_dir: Path) -> Page:
    """The report of the run in a directory; raises RunDirError where there is none."""
    view = _view(run_dir)
    sections = [made for make in SECTIONS if (made := make(view)) is not None]
    kind = view.data.header.workload.kind
    if kind is Kind.TRAINING:
        sections = [page_training.in_steps(section) for section in sections]
    return Page(run_dir, view.data.header.compilot, head_of(view), tuple(sections))


def _view(run_dir: Path) -> View:
    directory = RunDir(run_dir)
    data, lines = read_run(run_dir), tuple(directory.lines())
    page = directory.doctor / PAGE_FILE
    return View(
        data=data,
        lines=lines,
        plan=_plan(directory),
        course=course(lines),
        examined=read_examination(directory),
        doctor_page=f"{directory.doctor.name}/{PAGE_FILE}" if page.exists() else "",
    )


def _plan(directory: RunDir) -> Plan | None:
    """The run's plan, to look at; a damaged one is none: the journal has the figures."""
    try:
        return directory.read_plan()
    except PlanError:
        return None


def read_examination(directory: RunDir) -> DoctorReport | None:
    """The run's own examination; one that is damaged or of another version is left out."""
    try:
        found = msgspec.json.decode((directory.doctor / REPORT_FILE).read_bytes(), type=DoctorReport)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == REPORT_SCHEMA else None
