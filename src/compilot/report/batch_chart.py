"""The curve of batch sizes: samples per second against the batch. In: BatchSizes. Out: a chart. Needs altair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import altair as alt

from compilot.records import BatchSizes
from compilot.report.chart_colours import curve_colours
from compilot.report.chart_style import layered, plot, title

HEIGHT = 320


class BatchMark(NamedTuple):
    """One point of a line."""

    candidate: str
    batch: int
    samples_per_s: float
    call_ms: float
    recommended: bool


def batch_chart(found: BatchSizes, engines: Mapping[str, str], model: str) -> alt.HConcatChart:
    """A line for each candidate; filled: the largest batch that is worth having. engines: by candidate id."""
    best = {one.candidate_id: one.max_batch_size for one in found.advice}
    marks = [
        BatchMark(p.candidate, p.batch, p.samples_per_s, p.call_s * 1e3, best.get(p.candidate_id) == p.batch)
        for p in found.points
        if p.call_s is not None and p.samples_per_s is not None
    ]
    colours = curve_colours([(p.candidate, engines.get(p.candidate_id, "eager")) for p in found.points])
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    base = plot(marks).encode(
        x=alt.X(
            "batch:Q",
            title="batch size (log scale)",
            scale=alt.Scale(type="log", base=2, nice=False),
            axis=alt.Axis(values=sorted({mark.batch for mark in marks}), format="d"),
        ),
        y=alt.Y("samples_per_s:Q", title="samples per second", scale=alt.Scale(zero=True)),
        color=alt.Color("candidate:N", title="candidate", sort=list(colours), scale=scale).legend(columns=3),
        tooltip=[
            *(alt.Tooltip(f"{name}:N") for name in ("candidate", "batch")),
            *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in ("samples_per_s", "call_ms")),
        ],
    )
    layers = [
        base.mark_line(strokeWidth=2),
        base.transform_filter("!datum.recommended").mark_point(strokeWidth=2, opacity=1, size=40),
        base.transform_filter("datum.recommended").mark_point(filled=True, opacity=1, size=110),
    ]
    below = (
        "filled: max_batch_size (" + ", ".join(f"{one.candidate} {one.max_batch_size}" for one in found.advice) + ")"
    )
    chart = alt.hconcat(layered(layers, HEIGHT))
    return chart.properties(title=title(f"Batch sizes: {model}", f"{below}; beyond it samples/s hardly grow"))
