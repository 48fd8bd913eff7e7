"""How a finding is named, placed and priced, in the same words in the terminal and on the page. Pure.

In: a finding, the number of calls of the drive, the user's folder. Out: "graph break", "net.py:17",
"~59.1 µs per call (2 times)", "1.2 s to trace again". The same for a point of the roofline: "58 % of the roof".
"""

from __future__ import annotations

from pathlib import Path

from compilot.diagnose.report_records import DoctorReport, RooflinePoint
from compilot.records import Finding
from compilot.report.figures import share_text, time_text

REPORT_FILE, PAGE_FILE = "report.json", "report.html"  # what an examination leaves in its folder
_ONE_OFF = ("recompile", "recompile-limit")  # paid when it happens, not in every call; a finding's cost is per call
_NAMES = {
    "graph-break": "graph break",
    "recompile-limit": "gives up: eager from then on",
    "compile-failure": "compile error",
    "train-mode": "train mode",
    "tiny-work": "tiny work",
    "long-compile": "long compile",
    "data-loading": "data loading",
}


def kind_text(kind: str) -> str:
    """The kind of a finding for people."""
    return _NAMES.get(kind, kind)


def place_text(where: str, root: Path | None) -> str:
    """file:line, below root where it lies there, of an installed package without the folders above it."""
    path = where.removeprefix(f"{root}/") if root is not None else where
    return path.rpartition("site-packages/")[2]


def cost_text(finding: Finding, calls: int) -> str:
    """The cost for people; "" where it is unknown."""
    if finding.cost_s is None:
        return ""
    if finding.kind in _ONE_OFF:
        times = f"{finding.count} times, " if finding.count > 1 else ""
        return f"{times}{time_text(finding.cost_s * max(calls, 1))} to trace again"
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"~{time_text(finding.cost_s)} per call{times}"


def recompiles(report: DoctorReport) -> int:
    """How often the drive compiled again, what is reported with a graph break included."""
    return sum(one.count for one in report.recompiles) + sum(one.recompiles for one in report.breaks)


def roof_text(point: RooflinePoint) -> str:
    """How near the roof it comes."""
    if point.roof_share is None:
        return "not compared with the roof (lower precision)"
    above = " (it works from the caches)" if point.roof_share > 1 else ""
    return f"{share_text(point.roof_share)} of the roof{above}"
