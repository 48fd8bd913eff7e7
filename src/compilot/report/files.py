"""Rows for programs. In: a run directory. Out: trials.csv (whole or not at all).

Covered: spreadsheets and scripts that compare runs. Not covered: raw samples (they are in journal.jsonl), JSON
(results.py).
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from compilot.artifacts.rundir import RunDir
from compilot.errors import cannot_write
from compilot.files import atomic
from compilot.report.data import Row, read_run, unavailable

DIGITS = 6  # significant ones; more would only pretend
_TAILS = {"p95_ms": 0.95, "p99_ms": 0.99}


def write_csv(run_dir: Path) -> Path:
    """Write RUN_DIR/trials.csv, one line per candidate; a reader sees the old file or the new one, whole."""
    path = RunDir(run_dir).trials_csv
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(Row.__annotations__), lineterminator="\n")
    writer.writeheader()
    for row in read_run(run_dir).rows:
        writer.writerow({name: _cell(row, name, value) for name, value in row.items()})
    try:
        atomic.write_bytes(path, text.getvalue().encode())
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem
    return path


def _cell(row: Row, name: str, value: object) -> object:
    if name in _TAILS and value is None and row["calls"]:
        return unavailable(_TAILS[name])
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value
