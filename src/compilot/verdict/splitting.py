"""Which calls are better answered in parts. In: what programs cost at each batch size. Out: rules to forecast, seconds.

A call with n rows in parts of r takes n // r calls of r rows and one of what is left. A program for one size pads that
last one, the program for all sizes does not. Every part costs a little besides: its inputs are cut and its answer is
joined, which counts as much as padding a call does. The best split into equal parts and a rest is found exactly: every
size that is asked for or measured is tried as a part, and of each the smallest call from which on cutting pays.
Not covered: whether a call may be cut (measure/splitting.py), which policies there are (policies.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compilot.records import SizeDemand, SplitRule
from compilot.verdict.shape_costs import Costs, Sizes

MARGIN = 0.05  # a call is cut only where its parts are this much faster by forecast: each one has costs of its own
MOST_ASKED = 32  # sizes of calls that are tried as parts; of more only the measured ones are


def in_parts_s(rows: int, rule: SplitRule, program: Costs, part_s: float, *, pads: bool) -> float:
    """Seconds of a call that is cut; pads: the program takes parts of one size alone."""
    whole, left = divmod(rows, rule.rows)
    seconds = whole * program.at((rule.rows,)) + (whole + bool(left)) * part_s
    if left:
        seconds += program.at((rule.rows if pads else left,))
    return seconds


def is_cut(rule: SplitRule | None, sizes: Sizes) -> bool:
    """Whether a call of these sizes is answered in parts."""
    return rule is not None and sizes[0] >= rule.min


def part_sizes(counts: Sequence[SizeDemand], *curves: Costs | None) -> list[int]:
    """Rows that a part may have: below those of the largest call."""
    asked = {one.sizes[0] for one in counts}
    measured = {size for curve in curves if curve is not None for size in curve.knots[0]}
    tried = measured | (asked if len(asked) <= MOST_ASKED else set())
    return sorted(size for size in tried if 1 <= size < max(asked))


def rules_for_all(counts: Sequence[SizeDemand], dynamic: Costs, part_s: float) -> Iterator[SplitRule]:
    """Of a program for all sizes: for every size of a part the smallest call from which on cutting pays."""
    for rows in part_sizes(counts, dynamic):
        best, gain, least = 0.0, 0.0, 0
        for one in sorted(counts, key=lambda one: one.sizes, reverse=True):
            if one.sizes[0] <= rows:
                break
            cut_s = in_parts_s(one.sizes[0], SplitRule(rows=rows, min=rows + 1), dynamic, part_s, pads=False)
            gain += one.count * (dynamic.at(one.sizes) * (1.0 - MARGIN) - cut_s)
            if gain > best:
                best, least = gain, one.sizes[0]
        if least:
            yield SplitRule(rows=rows, min=least)
