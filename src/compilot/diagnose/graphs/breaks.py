"""Graph breaks: one list out of many reports. In: what the tracer said. Out: `GraphBreak` records, one per place.

torch reports the same break again for each function it tries on the way out, once more when it gives the function up,
and again after every recompile. Here a place in the source counts once; the report with the longest stack names it, and
"the function was given up" is kept if any report said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from compilot.diagnose import frames
from compilot.diagnose.edits import Edit
from compilot.diagnose.frames import FileLine
from compilot.diagnose.graphs import advice, causes
from compilot.diagnose.report_records import Category, CodeFrame, GraphBreak, Recompile

if TYPE_CHECKING:
    from compilot._torch.dynamo_events import BreakEvent


def place(event: BreakEvent) -> FileLine:
    """Where the tracer stopped: the innermost frame, a library's or the user's."""
    return (event.stack[-1].file, event.stack[-1].line) if event.stack else ("", 0)


def reconcile(events: Iterable[BreakEvent], boundary: str) -> dict[FileLine, GraphBreak]:
    """One record per place, in the order they were met."""
    groups: dict[FileLine, list[BreakEvent]] = {}
    for event in events:
        if event.stack:
            groups.setdefault(place(event), []).append(event)
    return {where: _one(reports, boundary) for where, reports in groups.items()}


def _one(reports: Sequence[BreakEvent], boundary: str) -> GraphBreak:
    from compilot._torch.dynamo_events import registered_id

    best = max(reports, key=lambda report: len(report.stack))
    said = causes.read(best.message)
    where, inside = frames.blame(best.stack, boundary)
    category = causes.categorise(said, where.source)
    return GraphBreak(
        where=where,
        inside=inside,
        category=category,
        cause=causes.explain(said, category),
        fix=advice.advise(category, where, inside),
        gb_id=registered_id(said.title) or best.gb_id,
        gb_type=said.title or best.gb_type,
        link=best.link,
        skips=tuple(dict.fromkeys(report.skipped for report in reports if report.skipped)),
        raises=any(report.fatal for report in reports),
    )


def with_cost(
    found: GraphBreak, *, passed: Sequence[str], outside_s: float | None, fusion_s: float | None
) -> GraphBreak:
    """The same break with what watching a call said about it; `passed` are the submodules at each passing."""
    twice = found.where.source.startswith(("with ", "async with ")) and found.inside is None  # once in, once out
    return msgspec.structs.replace(
        found,
        per_call=max(len(passed) // (2 if twice else 1), 1),
        modules=tuple(dict.fromkeys(passed)),
        outside_s=outside_s,
        fusion_s=fusion_s,
    )


def counted_at(place: FileLine, found: GraphBreak) -> FileLine:
    """The line to count: the user's where the break is within the standard library, which many others pass too."""
    return place if found.inside is None or "site-packages" in found.inside.file else _spot(found.where)


_VALUES = (Category.ARGUMENT_VALUE, Category.OTHER)  # OTHER: a range, such as 0.0 < ___stack0


def fold(found: Sequence[GraphBreak], again: Iterable[Recompile]) -> tuple[list[GraphBreak], tuple[Recompile, ...]]:
    """Recompiles that only follow from a break are reported with it: its value changes, and what follows needs it.

    One that hit the limit stays a finding of its own: what runs in eager for good must never be hidden.
    """
    breaks, others = list(found), []
    for one in again:
        index = _maker(breaks, one) if one.resumed and one.category in _VALUES else None
        if index is None:
            others.append(one)
            continue
        known = breaks[index]
        if one.limit_hit:
            others.append(msgspec.structs.replace(one, fix=Edit.BREAK_FIRST(place=frames.spot(known.where))))
        else:
            breaks[index] = msgspec.structs.replace(known, recompiles=known.recompiles + one.count)
    return breaks, tuple(others)


def _maker(breaks: Sequence[GraphBreak], one: Recompile) -> int | None:
    """Which break made the value that changed: the one on the guard's line, or the one that assigns the name."""
    for index, found in enumerate(breaks):
        same_line = _spot(found.where) == _spot(one.where) and "___stack" in one.guard
        assigns = (
            one.name
            and found.where.file == one.where.file
            and re.match(rf"{re.escape(one.name)}\s*=", found.where.source)
        )
        if same_line or assigns:
            return index
    return None


def _spot(frame: CodeFrame) -> FileLine:
    return frame.file, frame.line
