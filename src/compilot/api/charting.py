"""`compilot.charts`: pictures of a run. In: a run directory or its plan. Out: files, and the record `Charts`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from compilot._choices import unknown
from compilot.api.reading import run_dir_of
from compilot.records import Plan

if TYPE_CHECKING:
    from compilot.report.chart_files import Charts

FOLDER = "charts"  # in the run directory


def charts(
    run: Plan | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    format: str = "svg",  # noqa: A002  # as the command's option
) -> Charts:
    """Draw a run: its search, the Pareto front, when a start is paid back, where the seconds went, what runs where.

    run is a run directory, or a plan that `tune` returned or `load_plan` read from one. out is the folder for the
    files, by default `charts` in the run directory. format is "svg", a picture for each chart, or "html", one page with
    all of them. Needs altair and vl-convert-python, which the extra `charts` brings.
    """
    from compilot.report.chart_files import ChartFormat, write_charts

    if format not in list(ChartFormat):
        raise unknown("format", format, list(ChartFormat))
    run_dir = run_dir_of(run) if isinstance(run, Plan) else Path(run).absolute()
    return write_charts(run_dir, Path(out).absolute() if out is not None else run_dir / FOLDER, ChartFormat(format))
