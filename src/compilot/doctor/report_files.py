"""The doctor's report as files. In: a `DoctorReport`, or a folder. Out: `report.json` and `report.html`, or the report.

Covered: one folder per target, files that are there whole or not at all, reports that are damaged, of another schema or
about another target. Not covered: what is in a report (`diagnose.report_records`), how the page looks (`report`).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.errors import InputError, cannot_write
from compilot.files.atomic import write_bytes
from compilot.report.doctor_words import PAGE_FILE, REPORT_FILE
from compilot.workload.place import parse_target

REPORTS = Path("compilot-doctor")


def default_folder(target: str) -> Path:
    """compilot-doctor/FILE-FACTORY: one place per target, so that the next examination finds the last one."""
    place = parse_target(target)
    name = f"{place.file.stem if place.file else place.module}-{place.factory}"
    return REPORTS / re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def save(report: DoctorReport, folder: Path, tlparse: Path | None = None) -> Path:
    """Write the report into the folder, as JSON and as a page; a reader sees the old files or the new ones, whole."""
    from compilot.report.doctor_html import write_page

    path = folder / REPORT_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        write_page(report, folder / PAGE_FILE, tlparse)
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem
    return path


def last_report(folder: Path, target: str | None = None) -> DoctorReport:
    """The report of the last examination; with a target, one of anything else is refused."""
    path = folder / REPORT_FILE
    try:
        report = msgspec.json.decode(path.read_bytes(), type=DoctorReport)
    except FileNotFoundError:
        raise InputError(
            f"there is no earlier report in {folder}; examine the model once ('compilot doctor') before the edit."
        ) from None
    except (OSError, msgspec.DecodeError) as problem:
        raise InputError(f"{path} cannot be read: {problem}; examine the model again ('compilot doctor').") from None
    if report.schema != REPORT_SCHEMA:
        raise InputError(
            f"{path} has schema {report.schema}, written by compilot {report.compilot}; this one reads schema "
            f"{REPORT_SCHEMA}. Examine the model again ('compilot doctor')."
        )
    if target is not None and report.target != target:
        raise InputError(
            f"{path} is about {report.target or 'a model without a target'}, not about {target}; examine it once "
            "('compilot doctor') before the edit, or name the folder of its own report."
        )
    return report
