"""The report of a fleet as files: report.html for any browser, report.json for programs. In: FleetReport. Out: files.

The page needs nothing else: no network, no scripts. Everything from the manifest and the nodes is escaped.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from compilot._durations import spell_duration
from compilot.errors import cannot_write
from compilot.files import atomic
from compilot.fleet.rows import FleetReport
from compilot.report.doctor_html import template

PAGE = "report.html"
DATA = "report.json"


def write_page(report: FleetReport, out: Path) -> FleetReport:
    """Write both; gives the report with the page's place."""
    report = msgspec.structs.replace(report, page=out / PAGE)
    data = msgspec.json.encode(report, enc_hook=os.fspath)
    try:
        out.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(out / PAGE, page_html(report).encode())
        atomic.write_bytes(out / DATA, msgspec.json.format(data, indent=1) + b"\n")
    except OSError as problem:
        raise cannot_write(out, problem.strerror) from problem
    return report


def page_html(report: FleetReport) -> str:
    """The page."""
    return template("fleet.html.j2").render(report=report, took=spell_duration(round(report.seconds) or 1))
