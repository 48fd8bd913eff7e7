"""The doctor's findings as SARIF 2.1.0, for code scanning. In: a report with findings. Out: JSON text.

A result has its line of code, and says whether the base had it, too. What has no line of its own in the repository is
a result about the target's file: code scanning takes none without a place. Not covered: figures that pass.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from compilot.gate.outputs import places
from compilot.gate.outputs.places import Place
from compilot.gate.report_records import CheckReport, MetricResult, PlacedFinding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: CheckReport, root: Path | None = None) -> str:
    """The document; paths are relative to root, the top of the target's repository unless given."""
    base = root or places.root_of(report.target)
    target = places.of_target(report.target, base)
    results = [_finding(one, target, base) for one in report.findings]
    results += [_metric(one, target) for one in report.metrics if one.verdict.is_red]
    rules = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "compilot",
        "version": report.compilot,
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("-", " ")}} for rule in rules],
    }
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _finding(one: PlacedFinding, target: Place, root: Path) -> dict[str, Any]:
    found = one.finding
    own = places.of_finding(found.where, root)
    elsewhere = f" ({found.where})" if own is None and found.where else ""
    result: dict[str, Any] = {
        "ruleId": found.kind,
        "level": "note" if one.is_new is False else "warning",
        "message": {"text": f"{found.explanation} {found.advice}{elsewhere}".strip()},
        "partialFingerprints": {"compilot/v1": _digest(found.kind, found.category, found.snippet, found.what)},
        "locations": [_location(own or target)],
    }
    if one.is_new is not None:
        result["baselineState"] = "new" if one.is_new else "unchanged"
    return result


def _metric(one: MetricResult, target: Place) -> dict[str, Any]:
    return {
        "ruleId": one.metric,
        "level": "error",
        "message": {"text": f"{one.metric} of {one.arm}: {one.because}"},
        "partialFingerprints": {"compilot/v1": _digest(one.metric, one.arm)},
        "locations": [_location(target)],
    }


def _location(place: Place) -> dict[str, Any]:
    where = {"uri": quote(place.path), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": where, "region": {"startLine": max(1, place.line)}}}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
