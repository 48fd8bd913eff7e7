"""`compilot.write_report`: a run to look at. In: a run directory or its plan. Out: a file, and the record of it.

With an address of MLflow the run is exported there, too (ledger/mlflow_export.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from compilot._choices import unknown
from compilot.api.reading import run_dir_of
from compilot.artifacts.rundir import RunDir
from compilot.records import Plan

if TYPE_CHECKING:
    from compilot.report.page_files import WrittenReport


def write_report(
    run: Plan | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    format: str = "html",  # noqa: A002  # as `charts`
    mlflow: str | None = None,
    experiment: str = "compilot",
) -> WrittenReport:
    """Write the report of a run: one page with its verdict, pictures and tables. `tune` has written it already.

    run is a run directory, or a plan that `tune` returned or `load_plan` read from one. out is the file, by default
    `report.html` in the run directory, or `report.md`. format is "html", a page for any browser that needs nothing
    else, or "md", Markdown for a pull request. mlflow is the address of an MLflow tracking store, such as
    "sqlite:///mlflow.db": params, metrics and the report become a run of this experiment, once for each journal; it
    needs the extra `mlflow`.
    """
    from compilot.report.page_files import ReportFormat, write_page

    if format not in list(ReportFormat):
        raise unknown("format", format, list(ReportFormat))
    run_dir = run_dir_of(run) if isinstance(run, Plan) else Path(run).absolute()
    written = write_page(run_dir, Path(out).absolute() if out is not None else None, ReportFormat(format))
    if mlflow is None:
        return written
    from compilot.ledger.mlflow_export import export

    exported = export(RunDir(run_dir), written.path, mlflow, experiment)
    return msgspec.structs.replace(written, mlflow=exported)
