"""The doctor's half that is about time: what bounds the work, the roofline, data loading, compile time by stage.

In: a workload and a folder. Out: a report with those parts filled in, and their findings added and ranked. What cannot
be measured leaves a note instead of an exception: half a report is better than none. Runs in a child process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch

from compilot.diagnose import trusted
from compilot.diagnose.ranking import rank
from compilot.diagnose.report_records import DoctorReport
from compilot.diagnose.timing import bound, loading, machine_peaks, stages
from compilot.diagnose.timing.findings import time_findings
from compilot.diagnose.timing.roofline import roofline
from compilot.errors import first_cause

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.records import Plan
    from compilot.workload import Workload

BUSY = (
    "other programs used the cores while this machine's peaks were measured, so what bounds the work and the roofline "
    "are left out; run 'compilot doctor' again on a quieter machine"
)


def add_times(
    report: DoctorReport, workload: Workload, call: Call, workspace: Path, *, plan: Plan | None = None
) -> DoctorReport:
    """The report with everything about time; a compile with torch's defaults comes last, because it takes longest."""
    report = _add(report, "what bounds it", lambda: _bound(report, workload, call, plan))
    report = _add(report, "data loading", lambda: _loading(report, workload, call))
    report = _add(report, "compile time", lambda: _stages(report, workload, call, workspace))
    return with_findings(report)


def with_findings(report: DoctorReport) -> DoctorReport:
    """The findings of the timed parts put among the others, the most costly first; unknown costs keep their order."""
    return msgspec.structs.replace(report, findings=rank([*report.findings, *time_findings(report)]))


def _add(report: DoctorReport, what: str, part: Callable[[], DoctorReport]) -> DoctorReport:
    try:
        return part()
    except trusted.Untrusted as problem:
        notes = (*report.notes, str(problem))
        return msgspec.structs.replace(report, notes=tuple(dict.fromkeys(notes)))
    except Exception as problem:  # the user's model may do anything; the other parts still count
        note = f"{what}: could not be measured: {first_cause(problem)}"
        return msgspec.structs.replace(report, notes=(*report.notes, note))


def _bound(report: DoctorReport, workload: Workload, call: Call, plan: Plan | None) -> DoctorReport:
    peaks = machine_peaks.machine_peaks(_dtype(workload))
    if peaks.busy:  # both are measured against the peaks
        raise trusted.Untrusted(BUSY)
    seen = bound.look(workload, call, peaks)
    roof = roofline(seen.work, peaks.flops_per_s, peaks.bandwidth_bytes_per_s, seen.eager_s, plan, peaks.dtype)
    eager_s = min(report.eager_call_s or seen.eager_s, seen.eager_s)
    return msgspec.structs.replace(report, bound=seen.bound, roofline=roof, eager_call_s=eager_s)


def _loading(report: DoctorReport, workload: Workload, call: Call) -> DoctorReport:
    return msgspec.structs.replace(report, input_pipeline=loading.measure_loading(workload, call))


def _stages(report: DoctorReport, workload: Workload, call: Call, workspace: Path) -> DoctorReport:
    made = stages.measure_compile(workload, call, workspace)
    return msgspec.structs.replace(report, stages=made.stages, compile_time=made.time)


def _dtype(workload: Workload) -> torch.dtype:
    """The dtype that most weights have, for the peak that counts."""
    sizes: dict[torch.dtype, int] = {}
    for parameter in workload.model.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else torch.float32
