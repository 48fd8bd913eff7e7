"""Findings about time: what the timed parts of a report mean for the user.

In: a report with bound, roofline, input pipeline and compile time. Out: `Finding` records. Pure: no torch, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from compilot.diagnose.edits import Edit
from compilot.diagnose.report_records import DoctorReport
from compilot.diagnose.timing.loading import LIMIT, NOTICEABLE
from compilot.records import Finding

LONG_COMPILE_S = 10.0  # a start that people notice and deployments time out on
NEAR_ROOF = 0.7  # above this share of the roof there is little left to win


def time_findings(report: DoctorReport) -> list[Finding]:
    """Everything worth reporting, unordered."""
    return [*_loading(report), *_bound(report), *_roof(report), *_compile(report)]


def _loading(report: DoctorReport) -> Iterator[Finding]:
    pipeline = report.input_pipeline
    if pipeline is None or not pipeline.step_s or pipeline.load_s / pipeline.step_s < NOTICEABLE:
        return
    first = "fix the input pipeline before the model" if pipeline.load_s >= LIMIT * pipeline.step_s else "watch it"
    yield Finding(
        kind="data-loading",
        where="",
        explanation=pipeline.because,
        advice=Edit.FASTER_LOADER(first=first),
        cost_s=pipeline.load_s,
    )


def _bound(report: DoctorReport) -> Iterator[Finding]:
    found = report.bound
    if found is None:
        return
    share = {"overhead": found.overhead_share, "memory": found.memory_share, "compute": found.compute_share}
    eager = report.roofline.points[0].call_s if report.roofline and report.roofline.points else report.eager_call_s
    yield Finding(
        kind=f"{found.limited_by}-bound",
        where="",
        explanation=found.because,
        advice=found.advice,
        cost_s=share["overhead"] * eager if found.limited_by == "overhead" and eager else None,
    )


def _roof(report: DoctorReport) -> Iterator[Finding]:
    roof = report.roofline
    if roof is None or not roof.points:
        return
    share, label = max((point.roof_share or 0.0, point.label) for point in roof.points)
    if share < NEAR_ROOF:
        return
    yield Finding(
        kind="near-the-roof",
        where="",
        explanation=f"{label} runs at {share * 100:.0f} % of what this machine can do for this work",
        advice=Edit.NEAR_ROOF(),
    )


def _compile(report: DoctorReport) -> Iterator[Finding]:
    made = report.compile_time
    if made is None or made.total_s < LONG_COMPILE_S:
        return
    whole = [stage for stage in report.stages if not stage.submodule]
    longest = max(whole, key=lambda stage: stage.wall_s)
    savings = sorted(made.savings, key=lambda saving: -saving.saves_s)
    less = ", ".join(f"{saving.what} would save about {saving.saves_s:.0f} s" for saving in savings)
    yield Finding(
        kind="long-compile",
        where="",
        explanation=f"a cold start compiles for {made.total_s:.0f} s, {longest.wall_s:.0f} s of it {longest.name} "
        f"({made.compiler_runs} compiler runs)",
        advice=Edit.COMPILE_LESS(savings=less) if less else Edit.SHIP_ARTIFACT(),
    )
