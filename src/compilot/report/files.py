"""Rows for programs. In: a run directory. Out: trials.csv (whole or not at all), and one JSON document.

Covered: spreadsheets and scripts that compare runs. Not covered: raw samples (they are in journal.jsonl).
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, Protocol

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.errors import cannot_write
from compilot.files import atomic
from compilot.measure.scatter import Scatter, scatter
from compilot.records import MachineLoad, NotReached, Plan
from compilot.report.data import Row, RunData, read_run, unavailable
from compilot.verdict.busy import is_busy, smallest_shown
from compilot.verdict.words import NOISY

REPORT_SCHEMA = 1
DIGITS = 6  # significant ones; more would only pretend
_TAILS = {"p95_ms": 0.95, "p99_ms": 0.99}


class Finished(Protocol):
    """What a run that has just ended gives back (`pipeline.Outcome`)."""

    @property
    def plan(self) -> Plan: ...

    @property
    def run_dir(self) -> Path: ...


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


def as_json(source: Path | Finished) -> dict[str, Any]:
    """One document about a run: what was decided and why, one row per candidate, and the plan itself."""
    run_dir = source if isinstance(source, Path) else source.run_dir
    data = read_run(run_dir)
    plan = RunDir(run_dir).read_plan() if isinstance(source, Path) else source.plan
    return {
        "schema": REPORT_SCHEMA,
        "compilot": data.header.compilot,
        "run_dir": str(run_dir),
        "plan_file": str(RunDir(run_dir).plan) if plan else None,
        "sentence": sentence(plan, data),
        "verdict": msgspec.to_builtins(data.verdict),
        **_not_reached(data.verdict.not_reached if data.verdict else None),
        "rows": [dict(row) for row in data.rows],
        "load": load_document(data.diagnosis.load if data.diagnosis else None, eager_scatter(data)),
        "findings": msgspec.to_builtins(data.diagnosis.findings) if data.diagnosis else [],
        "plan": msgspec.to_builtins(plan),
    }


def load_document(load: MachineLoad | None, own: Scatter | None) -> dict[str, Any] | None:
    """What others did with the machine when the run began, and how much eager varied; None: neither is known."""
    if load is None and own is None:
        return None
    said: dict[str, Any] = {"busy": is_busy(load), "others": None, "steal": None, "cores": None, "processes": []}
    if load is not None:  # with the fields that have their default value, too
        said |= {**msgspec.structs.asdict(load), "processes": list(msgspec.to_builtins(load.processes))}
    noisy = own is not None and own.noise > NOISY
    least = [smallest_shown(load)] if load is not None and is_busy(load) else []
    least += [own.smallest] if own is not None and noisy else []
    return {**said, "eager_noise": own.noise if own else None, "smallest_shown": max(least, default=None)}


def eager_scatter(data: RunData) -> Scatter | None:
    """How much eager's calls varied in its own trial, computed again from the samples."""
    eager = next((trial for trial in data.trials.values() if trial.candidate.is_eager), None)
    return scatter(eager.measurement.call_s) if eager is not None and eager.measurement is not None else None


def _not_reached(missed: NotReached | None) -> dict[str, Any]:
    """The candidates that the budget did not suffice for, and the budget that would."""
    groups = (("not tried", missed.not_tried), ("ran out of time", missed.ran_out)) if missed else ()
    found = [
        {"candidate": one.label, "id": one.id, "engine": one.settings.engine, "rationale": one.rationale, "why": why}
        for why, candidates in groups
        for one in candidates
    ]
    return {"not_reached": found, "advised_budget_s": missed.budget_s if missed else None}


def sentence(plan: Plan | None, data: RunData) -> str:
    """The honest sentence of a run: the plan's own, else why eager stays."""
    if plan is not None:
        return plan.entries[0].sentence if plan.entries else plan.because
    return data.verdict.because if data.verdict else "the run ended before a verdict."


def _cell(row: Row, name: str, value: object) -> object:
    if name in _TAILS and value is None and row["calls"]:
        return unavailable(_TAILS[name])
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value
