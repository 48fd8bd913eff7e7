"""One run in full. In: its entry and its directory. Out: a `ShownRun`, every figure computed again from samples."""

from __future__ import annotations

from compilot.artifacts.rundir import RunDir
from compilot.errors import PlanError
from compilot.ledger.entries import RunEntry, RunState
from compilot.records import Finding, Record, RunHeader
from compilot.report.data import Row, read_run
from compilot.report.results import arm_sentences, sentence


class ShownRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run in full."""

    run: RunEntry
    header: RunHeader  # what was asked for, of which model and machine
    sentence: str  # the honest one: what the plan brings, or why eager stays
    rows: tuple[Row, ...]  # one per candidate, in the order tried; the columns of trials.csv
    findings: tuple[Finding, ...]  # what is worth knowing about the model


def shown(entry: RunEntry, run_dir: RunDir) -> ShownRun:
    """What the run's journal has."""
    data = read_run(run_dir.path)
    compared = entry.state is RunState.COMPARED
    try:
        plan = None if compared else run_dir.read_plan()
    except PlanError:  # a damaged one: the journal has the figures
        plan = None
    return ShownRun(
        run=entry,
        header=data.asked,
        sentence=" ".join(arm_sentences(data, {})) if compared else sentence(plan, data),
        rows=tuple(data.rows),
        findings=data.diagnosis.findings if data.diagnosis else (),
    )
