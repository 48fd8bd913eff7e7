"""One trace, its programs and its cost curves. In: a ShapeChoice and what it was made from. Out: a chart. Needs altair.

Above: how often each size was seen, coloured by what serves it; a line at the size of each static program. Below:
seconds of a call in eager, with a program for that size, and with the dynamic one; the thick line is the chosen policy.
Covered: one dimension. Not covered: two; the table of a choice says more there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import altair as alt

from compilot.errors import InputError
from compilot.records import ShapeChoice, ShapeCosts, SizeDemand
from compilot.report.chart_colours import NEUTRAL, PALETTE
from compilot.report.chart_style import WIDTH, layered, plot, title
from compilot.verdict.policies import ServedSize, who_serves
from compilot.verdict.words import count, times

COUNTS_HEIGHT, COSTS_HEIGHT = 160, 220
CHOSEN = "chosen policy"
COLOURS = {"eager": NEUTRAL, "static": PALETTE[0], "dynamic": PALETTE[1], CHOSEN: PALETTE[2]}


class SizeBar(NamedTuple):
    """How often one size was seen."""

    size: int
    calls: int
    served: str  # "static", "dynamic" or "eager"
    program: str


class CurvePoint(NamedTuple):
    """Seconds of a call."""

    size: int
    call_ms: float
    program: str


def shape_chart(
    choice: ShapeChoice, counts: Sequence[SizeDemand], costs: ShapeCosts, model: str, dimension: str = "size"
) -> alt.VConcatChart:
    """The picture of a choice in one dimension; dimension: what its sizes are called."""
    served = who_serves(counts, costs, choice.chosen)
    if len(served[0].sizes) != 1:
        raise InputError("only a choice in one dimension can be drawn.")
    bars, points = [_bar(one) for one in served if one.calls], [*_measured(costs), *_policy(served)]
    ends = [point.size for point in points] + [bar.size for bar in bars]
    x = alt.X("size:Q", title=dimension, scale=alt.Scale(domain=[0, max(ends)], nice=False))
    names = [name for name in COLOURS if any(point.program == name for point in points)]
    scale = alt.Scale(domain=names, range=[COLOURS[name] for name in names])
    tops = plot({"size": one.sizes[0]} for one in choice.chosen.buckets).mark_rule(strokeDash=[4, 3], opacity=0.7)
    seen = (
        plot(bars)
        .mark_rule(strokeWidth=3)
        .encode(
            x=x,
            y=alt.Y("calls:Q", title="calls"),
            color=alt.Color("served:N", scale=scale, legend=None),
            tooltip=["size:Q", "calls:Q", "program:N"],
        )
    )
    lines = (
        plot(points)
        .mark_line(interpolate="linear")
        .encode(
            x=x,
            y=alt.Y("call_ms:Q", title="milliseconds of a call"),
            color=alt.Color("program:N", title=None, scale=scale),
            strokeWidth=alt.condition(f"datum.program == '{CHOSEN}'", alt.value(4), alt.value(2)),
            tooltip=["program:N", "size:Q", alt.Tooltip("call_ms:Q", format=".3~g")],
        )
    )
    chart = alt.vconcat(
        layered([seen, tops.encode(x=x)], COUNTS_HEIGHT, WIDTH), layered([lines, tops.encode(x=x)], COSTS_HEIGHT, WIDTH)
    )
    below = (
        f"{choice.chosen.policy.value}: {count(choice.chosen.entries, 'program')}, {times(choice.speedup)} by forecast"
    )
    return chart.properties(title=title(f"Sizes and what serves them: {model}", below))


def _bar(one: ServedSize) -> SizeBar:
    static = not isinstance(one.by, str)
    name = "x".join(map(str, one.by)) if static else str(one.by)
    return SizeBar(one.sizes[0], one.calls, "static" if static else name, name)


def _measured(costs: ShapeCosts) -> Iterator[CurvePoint]:
    for name, program in (("eager", costs.eager), ("static", costs.static), ("dynamic", costs.dynamic)):
        for point in sorted(program.points, key=lambda one: one.sizes) if program is not None else ():
            yield CurvePoint(point.sizes[0], point.call_s * 1e3, name)


def _policy(served: Sequence[ServedSize]) -> Iterator[CurvePoint]:
    for one in served:
        yield CurvePoint(one.sizes[0], one.call_s * 1e3, CHOSEN)
