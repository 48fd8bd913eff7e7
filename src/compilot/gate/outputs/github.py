"""A check in a GitHub workflow: annotations as lines of the log. In: a report. Out: text. The summary is Markdown."""

from __future__ import annotations

import os
from pathlib import Path

from compilot.gate.metrics import THROUGHPUT
from compilot.gate.outputs import places
from compilot.gate.outputs.markdown import markdown
from compilot.gate.report_records import CheckReport, GateVerdict, PlacedFinding

LEVELS = {
    GateVerdict.SLOWER: "error",
    GateVerdict.WORSE: "error",
    GateVerdict.INCONCLUSIVE: "warning",
    GateVerdict.NOT_MEASURED: "notice",
}
SUMMARY = "GITHUB_STEP_SUMMARY"


def in_github() -> bool:
    """Whether this is a workflow of GitHub."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def workflow_lines(report: CheckReport, root: Path | None = None) -> list[str]:
    """One line for each metric that is not a pass, and for each new finding at its line of code."""
    lines = [
        f"::{LEVELS[one.verdict]} title={_value(f'compilot: {one.metric} of {one.arm}')}::{_text(one.because)}"
        for one in report.metrics
        if one.verdict in LEVELS and one.metric != THROUGHPUT
    ]
    if report.verdict is GateVerdict.NOT_MEASURED:
        lines.insert(0, f"::error title=compilot::{_text(report.because)}")
    base = root or places.root_of(report.target)
    return [*lines, *(_placed(one, base) for one in report.findings if one.is_new is not False)]


def _placed(one: PlacedFinding, root: Path) -> str:
    found = places.of_finding(one.finding.where, root)
    words = f"{one.finding.explanation} {one.finding.advice}"
    if found is None:
        return f"::warning title=compilot doctor::{_text(words)}"
    return f"::warning file={_value(found.path)},line={found.line},title=compilot doctor::{_text(words)}"


def write_summary(report: CheckReport) -> bool:
    """Append the result to the workflow's summary; False: there is none to write to."""
    place = os.environ.get(SUMMARY)
    if not place:
        return False
    with open(place, "a", encoding="utf-8", errors="replace") as summary:
        summary.write(markdown(report) + "\n")
    return True


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
