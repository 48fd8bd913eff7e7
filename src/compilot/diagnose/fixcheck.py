"""Did the edits help? In: the last report and the new one. Out: which findings went away, stayed, or are new.

A finding is the same when its kind, its category, its file, its line of source and the thing that changed are: the
line's number moves with every edit. A function that gives up and one that is only compiled again are the same fault,
better or worse. Only findings with a place in the source take part; the others are figures, not faults.
A finding of the last report is gone only when everything was looked at: any call may meet any line.
"""

from __future__ import annotations

from collections import defaultdict

from compilot.diagnose.ranking import COMPILE_FAILURE, GRAPH_BREAK, RECOMPILE, RECOMPILE_LIMIT
from compilot.diagnose.report_records import DoctorReport
from compilot.records import Finding, Record

_MILDER = {RECOMPILE_LIMIT: RECOMPILE, COMPILE_FAILURE: GRAPH_BREAK}  # the same fault, with less harm


class FixCheck(Record, frozen=True, kw_only=True):
    """What became of the findings."""

    gone: tuple[Finding, ...] = ()
    not_checked: tuple[Finding, ...] = ()  # not met again, but not everything was looked at
    stayed: tuple[Finding, ...] = ()  # as they are now
    new: tuple[Finding, ...] = ()
    better: tuple[Finding, ...] = ()  # of those that stayed: no longer given up, no longer an error
    worse: tuple[Finding, ...] = ()


def compare(before: DoctorReport, now: DoctorReport) -> FixCheck:
    """The findings of two reports, side by side; equal lines are counted, not lumped."""
    left: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for one in _placed(before):
        left[_identity(one)].append(one)
    pairs = [(one, _taken(left[_identity(one)], one.kind)) for one in _placed(now)]
    missing = tuple(one for one in _placed(before) if any(one is other for other in left[_identity(one)]))
    return FixCheck(
        gone=() if now.unseen else missing,
        not_checked=missing if now.unseen else (),
        stayed=tuple(one for one, old in pairs if old is not None),
        new=tuple(one for one, old in pairs if old is None),
        better=tuple(one for one, old in pairs if old is not None and _MILDER.get(old.kind) == one.kind),
        worse=tuple(one for one, old in pairs if old is not None and _MILDER.get(one.kind) == old.kind),
    )


def _placed(report: DoctorReport) -> list[Finding]:
    return [one for one in report.findings if one.where]


def _taken(left: list[Finding], kind: str) -> Finding | None:
    """The counterpart, which nobody else can have then; the one of the same kind where there are several."""
    if not left:
        return None
    return left.pop(next((index for index, one in enumerate(left) if one.kind == kind), 0))


def _identity(one: Finding) -> tuple[str, ...]:
    return _MILDER.get(one.kind, one.kind), one.category, one.where.rpartition(":")[0], one.snippet, one.what
