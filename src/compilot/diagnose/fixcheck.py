"""Did the edits help? In: the last report and the new one. Out: which findings went away, stayed, or are new.

A finding is the same when its kind, its category, its file and its line of source are: the line's number moves with
every edit. Only findings with a place in the source take part; the others are figures, not faults.
"""

from __future__ import annotations

from collections import Counter

from compilot.diagnose.report_records import DoctorReport
from compilot.records import Finding, Record


class FixCheck(Record, frozen=True, kw_only=True):
    """What became of the findings."""

    gone: tuple[Finding, ...] = ()
    stayed: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()


def compare(before: DoctorReport, now: DoctorReport) -> FixCheck:
    """The findings of two reports, side by side."""
    old, fresh = _placed(before), _placed(now)
    return FixCheck(
        gone=_without(old, fresh),
        stayed=tuple(one for one in fresh if one not in _without(fresh, old)),
        new=_without(fresh, old),
    )


def _placed(report: DoctorReport) -> list[Finding]:
    return [one for one in report.findings if one.where]


def _without(findings: list[Finding], others: list[Finding]) -> tuple[Finding, ...]:
    """Those that have no counterpart among the others; equal lines are counted, not lumped."""
    left = Counter(map(_identity, others))
    kept = []
    for one in findings:
        if left[_identity(one)] > 0:
            left[_identity(one)] -= 1
        else:
            kept.append(one)
    return tuple(kept)


def _identity(one: Finding) -> tuple[str, ...]:
    return one.kind, one.category, one.where.rpartition(":")[0], one.snippet
