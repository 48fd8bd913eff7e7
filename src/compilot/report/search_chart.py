"""The course of a search as a chart: speed-up at each trial, the best so far, what the time was spent on. Needs altair.

In: a Course. Out: a chart of up to three views above each other with one axis of seconds: trials that were timed, those
that were dropped, and the parts of the run. The trials that mattered have numbers; a key beside the chart names them.
Not covered: reading the journal (course.py), other charts (charts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import altair as alt

from compilot.records import State
from compilot.report.chart_colours import KeyRow
from compilot.report.chart_labels import Axis, placed, spread
from compilot.report.chart_style import WIDTH, engine_colour, layered, plot, title, with_key
from compilot.report.course import Course, Mark, Phase, improvements, keyed, over_budget, spent, timed
from compilot.report.figures import time_text

SHAPES = {  # of trials that gave no candidate: the lane names the state as well
    State.WRONG: "cross",
    State.CRASHED: "triangle-down",
    State.TIMED_OUT: "square",
    State.INFEASIBLE: "diamond",
    State.PRUNED: "triangle-up",
}
HEIGHT = 280
LANE = 22  # pixels of a lane of dropped trials, and of the parts of the run
RISER = 24  # points of a step: close enough at this height
LETTER = 5.8  # pixels of a letter of a caption
PROOF = "◆"  # what the key calls the mark of the confirmation


class View(NamedTuple):
    """The course, and the axes that its views share."""

    course: Course
    x: Axis
    y: Axis

    @property
    def timed(self) -> list[Mark]:
        """The trials with a figure that counts."""
        return timed(self.course)

    @property
    def keyed(self) -> list[Mark]:
        """Those that the key names: each improvement, and the chosen one."""
        return keyed(self.course)

    def is_chosen(self, mark: Mark) -> bool:
        """Whether the plan uses it; where eager stays, eager."""
        return self.course.chose(mark)

    def across(self, field: str, axis: alt.Axis | None = None) -> alt.X:
        """A field in seconds of the run."""
        return alt.X(f"{field}:Q", scale=alt.Scale(domain=[self.x.low, self.x.high], nice=False), axis=axis)

    def up(self, field: str = "ratio") -> alt.Y:
        """A field that is a speed-up."""
        scale = alt.Scale(domain=[self.y.low, self.y.high], nice=False, zero=False)
        return alt.Y(f"{field}:Q", title="speed-up over eager", scale=scale, axis=alt.Axis(tickCount=7, format=".2~f"))

    def colour(self) -> alt.Color:
        """The engine."""
        return engine_colour(mark.engine for mark in self.course.marks)


def search_chart(found: Course, model: str) -> alt.HConcatChart:
    """One mark per trial at its end, with a line from its beginning."""
    view = _view(found)
    dropped = [mark for mark in found.marks if mark.state is not State.OK]
    views = [_trials(view), *([_dropped(view, dropped)] if dropped else []), _phases(view)]
    chart = with_key(alt.vconcat(*views, spacing=6), _key(view))
    return chart.properties(title=title(f"The course of a search: {model}", spent(found)))


def _view(found: Course) -> View:
    versus = found.ending.versus if found.ending else None
    ratios = [mark.ratio or 0.0 for mark in timed(found)]
    ratios += [versus.low, versus.high] if versus is not None else []
    last_s = max(found.end_s, found.budget_s or 0.0) or 1.0
    return View(found, Axis(0.0, 1.02 * last_s, WIDTH), spread([1.0, *ratios], HEIGHT, 0.12))


# ------------------------------------------------------------------------------------------------------------ trials


def _trials(view: View) -> alt.LayerChart:
    base = plot(view.timed).encode(y=view.up(), color=view.colour())
    layers = [
        _borders(view),
        plot([{"ratio": 1.0}]).mark_rule(style="eager").encode(y=view.up()),
        *_budget(view),
        _best(view),
        base.mark_rule(strokeWidth=3, opacity=0.45).encode(x=view.across("from_s"), x2="to_s:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=view.across("to_s"), tooltip=_tooltip()),
        *_named(view),
        *_proof(view),
    ]
    return layered(layers, HEIGHT)


def _tooltip() -> list[alt.Tooltip]:
    return [
        *(alt.Tooltip(f"{name}:N") for name in ("label", "engine", "state", "reason")),
        alt.Tooltip("ratio:Q", title="speed-up", format=".2f"),
        alt.Tooltip("from_s:Q", title="began at", format=".1f"),
        alt.Tooltip("to_s:Q", title="ended at", format=".1f"),
    ]


def _borders(view: View) -> alt.Chart:
    """Where a part of the run ends."""
    chart: alt.Chart = plot(view.course.phases).mark_rule(style="border").encode(x=view.across("to_s"))
    return chart


def _budget(view: View) -> list[alt.Chart]:
    """The end of the budget, where the run was over it."""
    budget_s = over_budget(view.course)
    if budget_s is None:
        return []
    return [plot([{"budget_s": budget_s}]).mark_rule(style="eager").encode(x=view.across("budget_s"))]


def _best(view: View) -> alt.Chart:
    """The best so far, until the last trial ended."""
    steps = [{"to_s": mark.to_s, "ratio": mark.ratio} for mark in improvements(view.timed)]
    steps += [{"to_s": view.course.marks[-1].to_s, "ratio": steps[-1]["ratio"]}] if steps else []
    line = plot(steps).mark_line(style="best", interpolate="step-after")
    chart: alt.Chart = line.encode(x=view.across("to_s"), y=view.up())
    return chart


def _named(view: View) -> list[alt.Chart]:
    """Numbers beside the trials of the key, and a ring around the chosen one."""
    spots = [(mark.to_s, mark.ratio or 0.0) for mark in view.keyed]
    others = [(mark.to_s, mark.ratio or 0.0) for mark in view.timed if mark not in view.keyed]
    places = placed(spots, view.x, view.y, [*others, *_risers(view)])
    numbers = [{"number": str(n), "to_s": x, "ratio": y} for n, (x, y) in enumerate(places, 1)]
    ring = plot(mark for mark in view.keyed if view.is_chosen(mark)).mark_point(style="ring", size=260)
    text = plot(numbers).mark_text(style="number").encode(text="number:N")
    return [chart.encode(x=view.across("to_s"), y=view.up()) for chart in (ring, text)]


def _risers(view: View) -> list[tuple[float, float]]:
    """Points of the upright parts of the line of the best so far: numbers stand beside them."""
    found = []
    for lower, upper in pairwise(improvements(view.timed)):
        low, high = lower.ratio or 0.0, upper.ratio or 0.0
        found += [(upper.to_s, low + share / RISER * (high - low)) for share in range(RISER)]
    return found


def _proof(view: View) -> list[alt.Chart]:
    """What the confirmation says of the chosen one, with its 95 % interval."""
    ending = view.course.ending
    if ending is None or ending.versus is None:
        return []
    one = {"to_s": ending.at_s, "ratio": ending.versus.ratio, "low": ending.versus.low, "high": ending.versus.high}
    base = plot([one]).encode(x=view.across("to_s"))
    interval = base.mark_rule(style="proof").encode(y=view.up("low"), y2="high:Q")
    return [
        interval,
        base.mark_point(style="proof", shape="diamond", filled=True, size=90, opacity=1).encode(y=view.up()),
    ]


# ----------------------------------------------------------------------------------------------- dropped, and the parts


def _dropped(view: View, dropped: Sequence[Mark]) -> alt.LayerChart:
    """Trials that gave no candidate: one lane for each state."""
    shapes = {state.value: shape for state, shape in SHAPES.items() if any(mark.state is state for mark in dropped)}
    y = alt.Y("state:N", title=None, sort=list(shapes), axis=alt.Axis(domain=False, ticks=False, labelPadding=7))
    scale = alt.Scale(domain=list(shapes), range=list(shapes.values()))
    base = plot(dropped).encode(y=y, color=view.colour())
    spans = base.mark_rule(strokeWidth=3, opacity=0.45).encode(x=view.across("from_s"), x2="to_s:Q")
    points = base.mark_point(filled=True, size=80, opacity=1).encode(
        x=view.across("to_s"), shape=alt.Shape("state:N", legend=None, scale=scale), tooltip=_tooltip()
    )
    return layered([_borders(view), spans, points], LANE * len(shapes))


def _phases(view: View) -> alt.LayerChart:
    """The parts of the run as bands along the axis, named where there is room."""
    axis = alt.Axis(title="seconds of the run", grid=False, tickCount=8)
    bands = plot(view.course.phases).mark_rect(style="band", xOffset=1, x2Offset=-1)
    roomy = [phase for phase in view.course.phases if _pixels(view, phase) >= LETTER * len(phase.name)]
    captions = [{"at_s": (phase.from_s + phase.to_s) / 2, "name": phase.name} for phase in roomy]
    names = plot(captions).mark_text(style="caption")
    tooltip = [alt.Tooltip("name:N"), *(alt.Tooltip(f"{end}_s:Q", format=".1f") for end in ("from", "to"))]
    return layered(
        [
            bands.encode(x=view.across("from_s", axis), x2="to_s:Q", tooltip=tooltip),
            names.encode(x=view.across("at_s", axis), text="name:N"),
        ],
        LANE,
    )


def _pixels(view: View, phase: Phase) -> float:
    return view.x.pixel(phase.to_s) - view.x.pixel(phase.from_s)


# ------------------------------------------------------------------------------------------------------------- words


def _key(view: View) -> list[KeyRow]:
    key = []
    for number, mark in enumerate(view.keyed, 1):
        chosen = "chosen; " if view.is_chosen(mark) else ""
        figures = f"{chosen}{mark.ratio:.2f}x at its trial, ended at {time_text(mark.to_s)}"
        key.append(KeyRow(str(number), mark.label, figures))
    versus = view.course.ending.versus if view.course.ending else None
    if versus is not None:
        key.append(KeyRow(PROOF, f"confirmed: {versus.ratio:.2f}x", f"95 % {versus.low:.2f}-{versus.high:.2f}"))
    return key
