"""The report as a file. In: a run directory. Out: report.html or report.md, whole or not at all, and its record."""

from __future__ import annotations

import enum
from pathlib import Path

from compilot.errors import cannot_write
from compilot.files import atomic
from compilot.records import Record
from compilot.report.page import page_of
from compilot.report.page_html import page_html
from compilot.report.page_markdown import page_markdown


class ReportFormat(enum.StrEnum):
    """What a report is written as."""

    HTML = "html"  # one page for any browser, with pictures
    MD = "md"  # Markdown, for a pull request


class MlflowRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A run as MLflow has it."""

    uri: str  # of the tracking store
    experiment: str
    run_id: str  # MLflow's own
    was_there: bool  # the same journal was exported before: nothing was written


class WrittenReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The report of a run, as a file."""

    run_dir: Path
    path: Path  # of the file
    format: ReportFormat
    sections: tuple[str, ...]  # what is on it; a run has no section without figures for it
    mlflow: MlflowRun | None = None  # None: nobody asked for an export


def write_page(run_dir: Path, path: Path | None = None, form: ReportFormat = ReportFormat.HTML) -> WrittenReport:
    """Write the report, by default as report.html or report.md in the run directory."""
    path = path if path is not None else run_dir / f"report.{form.value}"
    page = page_of(run_dir)
    text = page_html(page) if form is ReportFormat.HTML else page_markdown(page)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, text.encode())
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem
    return WrittenReport(
        run_dir=run_dir, path=path, format=form, sections=tuple(section.id for section in page.sections)
    )
