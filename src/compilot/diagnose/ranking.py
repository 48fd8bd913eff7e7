"""From breaks and recompiles to findings, the most costly first. In: records. Out: `Finding`s; what matters most.

A finding's cost is per call. A recompile is paid once, so its cost is spread over the calls of the drive, and counts
the tracing alone: the compiler behind it costs more. Failures and functions that fell back to eager for good come
first whatever they cost here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilot.diagnose.frames import spot
from compilot.diagnose.report_records import CodeFrame, DoctorReport, GraphBreak, Recompile
from compilot.records import Finding

GRAPH_BREAK = "graph-break"
RECOMPILE = "recompile"
RECOMPILE_LIMIT = "recompile-limit"
COMPILE_FAILURE = "compile-failure"
_FIRST = (COMPILE_FAILURE, RECOMPILE_LIMIT)
TOP = 3
_FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")  # a number by itself: not the 16 of bf16


def rank(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The most costly first; what has no cost keeps its order at the end."""
    return tuple(sorted(findings, key=lambda one: (one.kind not in _FIRST, -(one.cost_s or 0.0))))


def top_findings(report: DoctorReport) -> tuple[Finding, ...]:
    """The three findings that matter most to a tuning run; what its plans see to by themselves is none of them."""
    return tuple(one for one in report.findings if not one.served)[:TOP]


def once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, in order; of one without a place the figures differ from look to look, the words do not."""
    kept: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        words = one.explanation if one.where else _FIGURE.sub("", one.explanation)
        kept.setdefault((one.kind, one.where, words), one)
    return tuple(kept.values())


def of_break(found: GraphBreak) -> Finding:
    """A graph break as a finding."""
    parts = [found.cause]
    if found.inside is not None:
        parts.append(f"it happens inside {_short(found.inside)}")
    if found.raises:
        parts.append("torch.compile raises an error here instead of going on in eager")
    elif found.skips:
        parts.append(
            f"{', '.join(found.skips)} runs in eager as a whole, and its other breaks show only after this one"
        )
    if found.recompiles:
        parts.append("its value changes from call to call, so what follows is compiled again")
    costs = [part for part in (found.outside_s, found.fusion_s) if part is not None]
    return Finding(
        kind=COMPILE_FAILURE if found.raises else GRAPH_BREAK,
        where=spot(found.where),
        explanation="; ".join(parts),
        advice=found.fix,
        cost_s=sum(costs) if costs else None,
        category=found.category,
        snippet=found.where.source,
        gb_id=found.gb_id,
        count=found.per_call,
        recompiles=found.recompiles,
    )


def of_recompile(found: Recompile, calls: int) -> Finding:
    """A recompile as a finding."""
    parts = [found.cause]
    if found.functions > 1:
        parts.append(f"{found.functions} functions were compiled again, because graph breaks split the model")
    return Finding(
        kind=RECOMPILE_LIMIT if found.limit_hit else RECOMPILE,
        where=spot(found.where),
        explanation="; ".join(parts),
        advice=found.fix,
        cost_s=None if found.compile_s is None else found.compile_s / max(calls, 1),
        category=found.category,
        snippet=found.where.source,
        count=found.count,
        what=found.what,
        served=found.declared and not found.limit_hit,
    )


def _short(frame: CodeFrame) -> str:
    """A library's file without the folders above its package."""
    tail = frame.file.rpartition("site-packages/")[2]
    return f"{tail if tail != frame.file else frame.file.rpartition('/')[2]}:{frame.line} ({frame.function})"
