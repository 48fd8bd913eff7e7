"""The doctor's report as one HTML page that needs nothing else: no network, no scripts, no fonts.

In: a `DoctorReport`. Out: the page as text, well under 2 MB. Findings ranked with cost and fix, module tree, compile
time, what bounds the work, roofline, input pipeline, recompiles. Everything from the report is escaped; the page itself
forbids the browser to load anything; its one link, to tlparse's pages, is relative.
Covered: reports with parts missing. Not covered: the terminal (terminal.py).
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup

from compilot.diagnose.report_records import DoctorReport, StageTime
from compilot.files.atomic import write_bytes
from compilot.report import figures
from compilot.report.doctor_words import cost_text, kind_text, place_text, recompiles, roof_text
from compilot.report.icicle import icicle, stage_class
from compilot.report.moduletree import module_tree
from compilot.report.rooflinesvg import roofline_svg
from compilot.report.templating import environment_of

SUBMODULES = 12  # rows of compile time by submodule


class StageRow(NamedTuple):
    """One line of the stage table."""

    name: str
    wall_s: float
    share: float
    kind: str  # CSS class


def doctor_page(report: DoctorReport, tlparse: str = "") -> str:
    """The page; tlparse is a link to what tlparse made of the same examination."""
    return template("doctor.html.j2").render(
        report=report,
        stages=stage_rows(report.stages),
        submodules=submodule_rows(report.stages)[:SUBMODULES],
        icicle=Markup(_icicle(report)),
        roofline=Markup(roofline_svg(report.roofline) if report.roofline else ""),
        tree=module_tree(report.modules),
        shares=_shares(report),
        worst_s=max((finding.cost_s or 0.0 for finding in report.findings), default=0.0),
        machine=msgspec.to_builtins(report.fingerprint.machine) if report.fingerprint else None,
        root=_root(report),
        again=recompiles(report),
        tlparse=tlparse,
    )


def _root(report: DoctorReport) -> Path | None:
    """The folder of the user's own file: places below it are written without it."""
    file = report.target.rpartition(":")[0]
    return Path(file).parent if file.endswith(".py") else None


def write_page(report: DoctorReport, path: Path, tlparse: Path | None = None) -> None:
    """Write the page; a reader sees the old file or the new one, whole. tlparse is the folder with its pages."""
    link = quote(os.path.relpath(tlparse / "index.html", path.parent)) if tlparse is not None else ""
    write_bytes(path, doctor_page(report, link).encode())


def stage_rows(stages: tuple[StageTime, ...]) -> list[StageRow]:
    """The stages of the whole model, in the order of their life."""
    whole = [stage for stage in stages if not stage.submodule]
    total = sum(stage.wall_s for stage in whole) or 1.0
    return [StageRow(stage.name, stage.wall_s, stage.wall_s / total, stage_class(stage.name)) for stage in whole]


def submodule_rows(stages: tuple[StageTime, ...]) -> list[tuple[str, float]]:
    """Compile time by submodule, the longest first."""
    sums: dict[str, float] = defaultdict(float)
    for stage in stages:
        if stage.submodule:
            sums[stage.submodule] += stage.wall_s
    return sorted(sums.items(), key=lambda pair: -pair[1])


def _icicle(report: DoctorReport) -> str:
    made = report.compile_time
    return icicle(made.spans, made.total_s) if made else ""


def _shares(report: DoctorReport) -> list[tuple[str, str, float]]:
    """(CSS class, words, share) of the bar of what bounds the work."""
    bound = report.bound
    if bound is None:
        return []
    return [
        ("overhead", "Python and dispatch", bound.overhead_share),
        ("memory", "waiting for memory", bound.memory_share),
        ("compute", "computing", bound.compute_share),
    ]


@functools.cache
def template(name: str) -> jinja2.Template:
    """One of the pages, with the filters that all of them share."""
    environment = environment_of("compilot.report")
    environment.filters |= {
        "seconds": figures.time_text,
        "rate": figures.rate_text,
        "share": figures.share_text,
        "sentence": figures.sentence,
        "cost": cost_text,
        "kind": kind_text,
        "place": place_text,
        "roof": roof_text,
    }
    return environment.get_template(name)
