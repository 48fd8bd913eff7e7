"""What runs where, as a chart: the module tree from top to bottom, boxes as wide as their share of an eager call.

In: a Tree (boxes.py). Out: a chart: colours are engines, numbers are regions, and a key beside the chart says what runs
in each. Needs altair. Not covered: reading a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from compilot.engines import registry
from compilot.report.boxes import REST, Box, Row, Tree
from compilot.report.chart_colours import KeyRow
from compilot.report.chart_style import WIDTH, engine_colour, layered, plot, title, with_key

ROW = 46  # pixels of a level: a name and a number below it
GAP = 0.06  # of a level, between two
LETTER = 7.0  # pixels of a letter of a name
DEEPEST = 8  # levels that are drawn
STAYS = "x"  # what stays in eager because it is to blame
SMALLEST = 1.5  # pixels: narrower boxes cannot be seen


def boundary_chart(found: Tree, model: str) -> alt.HConcatChart:
    """The model is the uppermost box; what is in a submodule stands below it."""
    boxes = [box for box in found.boxes if box.depth < DEEPEST and (box.right - box.left) * WIDTH >= SMALLEST]
    levels = max(box.depth for box in boxes) + 1
    base = plot(_drawn(box, found.staying) for box in boxes).encode(x=_across(), y=_down(levels))
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("path", "class_name", "engine")]
    rects = base.mark_rect(opacity=0.5, cornerRadius=2).encode(
        x2="right:Q",
        y2="bottom:Q",
        color=engine_colour(box.engine for box in boxes),
        tooltip=[*tooltip, alt.Tooltip("share:Q", title="of an eager call", format=".1%")],
    )
    names = base.mark_text(style="name", align="center", dy=16).encode(x=_across("middle"), text="shown:N")
    numbers = base.mark_text(style="number", dy=32).encode(x=_across("middle"), text="region:N")
    chart = with_key(layered([rects, names, numbers], ROW * levels), [_key_row(row) for row in found.rows])
    return chart.properties(title=title(f"What runs where: {model}", _below(found)))


def _drawn(box: Box, staying: Sequence[str]) -> dict[str, Any]:
    wide = (box.right - box.left) * WIDTH >= LETTER
    mark = STAYS if box.path in staying else box.number.replace(REST, "")
    return {
        **box._asdict(),
        "path": box.path or "the whole model",
        "top": box.depth + GAP / 2,
        "bottom": box.depth + 1 - GAP / 2,
        "middle": (box.left + box.right) / 2,
        "shown": _fitting(box),
        "region": mark if wide else "",
    }


def _fitting(box: Box) -> str:
    """As much of the name as there is room for, from its end: "transformer.h.3", "h.3", "3", nothing."""
    room = int((box.right - box.left) * WIDTH / LETTER) - 1
    parts = box.name.split(".")
    tails = [".".join(parts[start:]) for start in range(len(parts))]
    return next((tail for tail in tails if len(tail) <= room), "")


def _across(field: str = "left") -> alt.X:
    axis = alt.Axis(format=".0%", tickCount=5, grid=False)
    scale = alt.Scale(domain=[0, 1], nice=False)
    return alt.X(f"{field}:Q", title="share of an eager call", scale=scale, axis=axis)


def _down(levels: int) -> alt.Y:
    return alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[levels, 0], nice=False))


def _key_row(row: Row) -> KeyRow:
    several = f"{row.submodules} submodules, " if row.submodules > 1 else ""
    number = row.number if row.number != REST else "·"
    return KeyRow(number, row.label, f"{several}{row.share * 100:.0f} % of an eager call")


def _below(found: Tree) -> str:
    if found.staying:
        verb = "stays" if len(found.staying) == 1 else "stay"
        return f"{STAYS} {', '.join(found.staying)} {verb} in eager: no engine can have it, or its answers were wrong"
    engines = dict.fromkeys(registry.title(box.engine) for box in found.boxes if box.number != REST)
    return f"numbers are regions; engines: {', '.join(engines)}" if engines else "the plan keeps eager"
