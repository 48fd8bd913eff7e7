"""Report: what a run found, for people and for programs. In: a run directory. Out: rows, CSV, records, a table.

data.py      journal -> plain rows; every figure is computed again from the raw samples
results.py   the records of a run, which are its JSON documents too
files.py     trials.csv
batches.py   batch sizes: points, advice, batches.csv, their table
pareto.py    who is not beaten in latency, start and memory at once
terminal.py  the table (the only module here that needs rich)
charts.py    pictures of a run (needs altair), of figures from course.py and chart_data.py; chart_files.py writes them
page.py      the report that every run writes: sections of text, tables and small pictures (picture_*.py, svg.py), as
             HTML (page_html.py) or Markdown (page_markdown.py); page_files.py writes it
Names load on first use: the pipeline needs only `write_csv` and `write_page`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.report.batches import write_batches_csv
    from compilot.report.data import Row, RunData, read_run
    from compilot.report.files import write_csv
    from compilot.report.page_files import write_page
    from compilot.report.results import Bench, Results, bench_of, results_of

_HOMES = {
    "Bench": "compilot.report.results",
    "Results": "compilot.report.results",
    "bench_of": "compilot.report.results",
    "results_of": "compilot.report.results",
    "Row": "compilot.report.data",
    "RunData": "compilot.report.data",
    "read_run": "compilot.report.data",
    "write_batches_csv": "compilot.report.batches",
    "write_csv": "compilot.report.files",
    "write_page": "compilot.report.page_files",
}

__all__ = [
    "Bench",
    "Results",
    "Row",
    "RunData",
    "bench_of",
    "read_run",
    "results_of",
    "write_batches_csv",
    "write_csv",
    "write_page",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
