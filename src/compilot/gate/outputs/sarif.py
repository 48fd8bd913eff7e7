"""The doctor's findings as SARIF 2.1.0, for code scanning. In: a report with findings. Out: JSON text.

A result has its line of code, and says whether the base had it, too. Metrics that fail without a line of their own are
results about the target's file. Not covered: figures that pass.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from compilot.gate.report_records import CheckReport, MetricResult, PlacedFinding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: CheckReport, root: Path | None = None) -> str:
    """The document; paths are relative to root, the working directory unless given."""
    base = root or Path.cwd()
    results = [_finding(one, base) for one in report.findings]
    results += [_metric(one, report.target, base) for one in report.metrics if one.verdict.is_red]
    rules = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "compilot",
        "version": report.compilot,
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("-", " ")}} for rule in rules],
    }
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _finding(one: PlacedFinding, root: Path) -> dict[str, Any]:
    found = one.finding
    place, _, line = found.where.rpartition(":")
    result: dict[str, Any] = {
        "ruleId": found.kind,
        "level": "note" if one.is_new is False else "warning",
        "message": {"text": f"{found.explanation} {found.advice}".strip()},
        "partialFingerprints": {"compilot/v1": _digest(found.kind, found.category, found.snippet, found.what)},
    }
    if one.is_new is not None:
        result["baselineState"] = "new" if one.is_new else "unchanged"
    if place and line.isdigit():
        result["locations"] = [_location(place, int(line), root)]
    return result


def _metric(one: MetricResult, target: str, root: Path) -> dict[str, Any]:
    place = target.rpartition(":")[0]
    result: dict[str, Any] = {
        "ruleId": one.metric,
        "level": "error",
        "message": {"text": f"{one.metric} of {one.arm}: {one.because}"},
        "partialFingerprints": {"compilot/v1": _digest(one.metric, one.arm)},
    }
    if place.endswith(".py"):
        result["locations"] = [_location(place, 1, root)]
    return result


def _location(place: str, line: int, root: Path) -> dict[str, Any]:
    path = os.path.relpath(place, root) if os.path.isabs(place) else place
    where = {"uri": Path(path).as_posix(), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": where, "region": {"startLine": max(1, line)}}}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
