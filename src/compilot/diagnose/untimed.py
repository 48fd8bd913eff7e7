"""A report of which nothing was timed alone. In: a `DoctorReport`. Out: the same report without any time. Pure.

Where other work of ours runs at the same time, a call of 9 ms may take 360 ms. Such figures are left out, not
explained. What was found, its order and its counts stay. Not covered: figures of an examination that had the machine
for itself but not its cores (`trusted`).
"""

from __future__ import annotations

import msgspec

from compilot.diagnose import trusted
from compilot.diagnose.report_records import DoctorReport
from compilot.records import Finding

_OF_TIMES = (  # kinds of findings that are only about a time
    "tiny-work",
    "overhead-bound",
    "memory-bound",
    "compute-bound",
    "near-the-roof",
    "data-loading",
    "long-compile",
)
_ABOUT_TIMES = (trusted.LEFT_OUT, trusted.NEVER_WARM)


def without_times(report: DoctorReport) -> DoctorReport:
    """The report without costs and times, and one note that says how to get them."""
    return msgspec.structs.replace(
        report,
        eager_call_s=None,
        findings=tuple(_unpriced(one) for one in report.findings if one.kind not in _OF_TIMES),
        breaks=tuple(msgspec.structs.replace(one, outside_s=None, fusion_s=None) for one in report.breaks),
        recompiles=tuple(msgspec.structs.replace(one, compile_s=None) for one in report.recompiles),
        stages=(),
        compile_time=None,
        bound=None,
        roofline=None,
        input_pipeline=None,
        notes=(*(one for one in report.notes if one not in _ABOUT_TIMES), note(report.target)),
    )


def note(target: str) -> str:
    """How to get the times."""
    command = f"'compilot doctor {target}'" if target else "compilot.examine"
    return f"costs were not timed, because other work ran at the same time; {command} times them"


def _unpriced(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, cost_s=None)
